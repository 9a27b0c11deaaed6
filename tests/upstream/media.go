package upstream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Media is a strict model server for audio, images or rerank. Its methods are handlers in the shape of real servers:
// they refuse what those refuse, and another model, and any request that carries a key.
type Media struct {
	Model string          // its name
	Next  <-chan struct{} // closed when Kokoro may send the second piece of speech
}

// Answers of the servers.
const (
	Heard     = "Four words were spoken."
	Pixel     = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	Subtitles = "WEBVTT\n\n00:00.000 --> 00:02.500\n" + Heard + "\n"
)

// Sound are the pieces of speech.
var Sound = [2]string{"ID3\x04\x00\x00\xff\xfb first \x00\r\n", "second data: [DONE]\n\n"}

// A question has the fields of a request for media, of a form or of JSON.
type question struct {
	Model     string   `json:"model"`
	Input     any      `json:"input"`
	Voice     string   `json:"voice"`
	Prompt    string   `json:"prompt"`
	Query     string   `json:"query"`
	Format    string   `json:"response_format"`
	Encoding  string   `json:"encoding_format"`
	Documents []string `json:"documents"`
	Top       *int     `json:"top_n"`

	stream bool
	files  map[string]string // of a form: their contents by the names of the parts
}

// read reads a request, or returns what is wrong with it.
func (m *Media) read(r *Request, path string) (q question, wrong string) {
	contentType := r.Header.Get("Content-Type")
	switch {
	case r.Method+" "+r.Target != "POST "+path:
		return q, "Not Found"
	case r.Header.Get("Authorization") != "" || r.Header.Get("X-Api-Key") != "":
		return q, "it has a key"
	case r.Header.Get("Content-Length") != strconv.Itoa(len(r.Body)):
		return q, "it does not have the length of its body"
	case strings.HasPrefix(contentType, "multipart/form-data"):
		wrong = q.readForm(r.Body, contentType)
	case contentType != "application/json":
		return q, "it is neither a form nor JSON: " + contentType
	default:
		if err := json.Unmarshal(r.Body, &q); err != nil {
			wrong = err.Error()
		}
	}
	if wrong == "" && q.Model != m.Model {
		wrong = fmt.Sprintf("The model %q does not exist.", q.Model)
	}
	return q, wrong
}

func (q *question) readForm(body []byte, contentType string) (wrong string) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return err.Error()
	}
	q.files = map[string]string{}
	texts := map[string]string{}
	for r := multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; {
		part, err := r.NextRawPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err.Error()
		}
		value, err := io.ReadAll(part)
		name, isList := strings.CutSuffix(part.FormName(), "[]")
		_, again := texts[name]
		switch {
		case err != nil:
			return err.Error()
		case part.FileName() != "":
			q.files[name] += string(value)
		case again && !isList:
			return "two parts " + name
		default:
			texts[name] = string(value)
		}
	}
	q.Model, q.Prompt, q.Format = texts["model"], texts["prompt"], texts["response_format"]
	q.stream = texts["stream"] == "true"
	return ""
}

// isFor reports whether a form is for a transcription in one of the formats.
func (q *question) isFor(formats ...string) bool {
	return q.files["file"] != "" && (q.Format == "" || slices.Contains(formats, q.Format))
}

// VLLM transcribes and ranks.
func (m *Media) VLLM(x *Exchange) {
	if _, wrong := m.read(&x.Request, "/v1/rerank"); wrong == "" {
		m.rank(x)
		return
	}
	q, wrong := m.read(&x.Request, "/v1/audio/transcriptions")
	switch {
	case wrong != "" || !q.isFor("json", "text", "verbose_json") || q.stream && q.Format == "verbose_json":
		x.Answer(http.StatusBadRequest, "application/json", fmt.Sprintf(
			`{"error":{"message":%q,"type":"BadRequestError","param":null,"code":400}}`, cmp.Or(wrong, "Unsupported request.")))
	case q.stream:
		const chunk = `data: {"id":"trsc-1","object":"transcription.chunk","created":1700000000,"model":%q,"choices":` +
			`[{"delta":{"content":%q},"finish_reason":%s}]}` + "\n\n"
		Events(fmt.Sprintf(chunk, m.Model, Heard[:4], "null"), fmt.Sprintf(chunk, m.Model, Heard[4:], `"stop"`), Done)(x)
	case q.Format == "text":
		x.Answer(http.StatusOK, "application/json", strconv.Quote(Heard))
	case q.Format == "verbose_json":
		x.Answer(http.StatusOK, "application/json",
			fmt.Sprintf(`{"duration":"2.5","language":"en","text":%q,"segments":[{"id":0,"text":%[1]q}]}`, Heard))
	default:
		x.Answer(http.StatusOK, "application/json", fmt.Sprintf(`{"text":%q,"usage":{"type":"duration","seconds":3}}`, Heard))
	}
}

// rank returns the documents in the opposite order, with their texts.
func (m *Media) rank(x *Exchange) {
	q, _ := m.read(&x.Request, "/v1/rerank")
	var results []string
	for i, document := range slices.Backward(q.Documents) {
		results = append(results, fmt.Sprintf(`{"index":%d,"document":{"text":%q,"multi_modal":null},"relevance_score":0.%d}`,
			i, document, i))
	}
	x.Answer(http.StatusOK, "application/json", fmt.Sprintf(`{"id":"score-1","model":%q,"usage":{"prompt_tokens":9,`+
		`"total_tokens":9},"results":[%s]}`, m.Model, strings.Join(results, ",")))
}

// LocalAI transcribes, ranks, and makes images, which it returns as addresses of its own by default.
func (m *Media) LocalAI(x *Exchange) {
	refuse := func(status int, problem string) {
		x.Answer(status, "application/json", fmt.Sprintf(`{"error":{"code":%d,"message":%q,"type":""}}`, status, problem))
	}
	switch x.Request.Target {
	case "/v1/audio/transcriptions":
		q, wrong := m.read(&x.Request, x.Request.Target)
		switch {
		case wrong != "" || q.files["file"] == "":
			refuse(http.StatusNotFound, wrong)
		case len(x.Request.Body) > 15<<20:
			refuse(http.StatusRequestEntityTooLarge, "Request Entity Too Large")
		case q.Format == "srt":
			x.Answer(http.StatusOK, "text/plain; charset=UTF-8", "1\n00:00:00,000 --> 00:00:02,500\n"+Heard+"\n")
		case !q.isFor("verbose_json"):
			refuse(http.StatusInternalServerError, "invalid response_format")
		default:
			x.Answer(http.StatusOK, "application/json", fmt.Sprintf(`{"segments":null,"text":%q,"duration":2.5}`, Heard))
		}
	case "/v1/rerank":
		if q, wrong := m.read(&x.Request, x.Request.Target); wrong != "" || q.Top != nil && *q.Top < 1 {
			x.Answer(http.StatusUnprocessableEntity, "application/json", `"top_n - should be greater than or equal to 1"`)
			return
		}
		m.rank(x)
	default:
		q, wrong := m.read(&x.Request, "/v1/images/generations")
		picture := fmt.Sprintf(`"b64_json":%q`, Pixel)
		if q.Format != "b64_json" {
			picture = `"url":"http://127.0.0.1:8080/generated-images/b641.png"`
		}
		if wrong != "" || q.Prompt == "" {
			refuse(http.StatusBadRequest, wrong)
			return
		}
		x.Answer(http.StatusOK, "application/json", fmt.Sprintf(`{"created":1700000000,"id":"1","data":[{"embedding":null,`+
			`"index":0,%s}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`, picture))
	}
}

// Speaches transcribes. Its streams end without [DONE].
func (m *Media) Speaches(x *Exchange) {
	q, wrong := m.read(&x.Request, "/v1/audio/transcriptions")
	switch {
	case wrong != "" || !q.isFor("json", "text", "verbose_json", "srt", "vtt"):
		x.Answer(http.StatusUnprocessableEntity, "application/json", fmt.Sprintf(
			`{"detail":[{"type":"literal_error","loc":["body","response_format"],"msg":%q,"input":%q}]}`,
			cmp.Or(wrong, "Input should be another format"), q.Format))
	case q.stream:
		Events(`data: {"type":"transcript.text.delta","delta":"`+Heard+`","logprobs":null}`+"\n\n",
			`data: {"type":"transcript.text.done","text":""}`+"\n\n")(x)
	case q.Format == "vtt":
		x.Answer(http.StatusOK, "text/vtt", Subtitles)
	default:
		x.Answer(http.StatusOK, "application/json", fmt.Sprintf(`{"text":%q,"logprobs":null,"usage":null}`, Heard))
	}
}

// Kokoro speaks in two writes, whatever the format that it was asked for, and lists its voices.
func (m *Media) Kokoro(x *Exchange) {
	if x.Request.Method+" "+x.Request.Target == "GET /v1/audio/voices?model="+m.Model {
		x.Answer(http.StatusOK, "application/json", `{"voices":[{"id":"af_heart","name":"af_heart"}]}`)
		return
	}
	q, wrong := m.read(&x.Request, "/v1/audio/speech")
	if wrong != "" || q.Input == nil || q.Input == "" {
		x.Answer(http.StatusBadRequest, "application/json", fmt.Sprintf(
			`{"detail":{"error":"validation_error","message":%q,"type":"invalid_request_error"}}`, cmp.Or(wrong, "No input.")))
		return
	}
	x.Head(http.StatusOK, "Content-Type: audio/mpeg", "Content-Disposition: attachment; filename=speech.mp3",
		"X-Accel-Buffering: no", "Cache-Control: no-cache", "Transfer-Encoding: chunked")
	x.Chunk(Sound[0])
	if x.Hold(m.Next); !x.Left() {
		x.Chunk(Sound[1])
		x.End()
	}
}

// SD edits images as sd-server, which needs a form.
func (m *Media) SD(x *Exchange) {
	q, wrong := m.read(&x.Request, "/v1/images/edits")
	if wrong != "" || q.Prompt == "" || q.files["image"] == "" {
		x.Answer(http.StatusBadRequest, "application/json", fmt.Sprintf(`{"error":%q}`, "image[] required "+wrong))
		return
	}
	x.Answer(http.StatusOK, "application/json",
		fmt.Sprintf(`{"created":1700000000,"data":[{"b64_json":%q}],"output_format":"png"}`, Pixel))
}
