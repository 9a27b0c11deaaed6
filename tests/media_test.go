package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/upstream"
)

// formHeader is the Content-Type of the forms of [form].
const formHeader = "Content-Type: multipart/form-data; boundary=" + boundary

const boundary = "----formdata-undici-0123456789"

// form returns a form with a file before the model, as of clients that sort by name, and further texts.
func form(file, model string, texts ...string) string {
	var b strings.Builder
	part := func(disposition, value string) {
		fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n", boundary, disposition, value)
	}
	part("name=\""+file+"\"; filename=\"a \\\"b\\\".wav\"\r\nContent-Type: application/octet-stream",
		"RIFF\x00\r\n--\r\n\xff")
	part(`name="model"`, model)
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		part(fmt.Sprintf("name=%q", name), value)
	}
	return b.String() + "--" + boundary + "--\r\n"
}

// modelAt returns where the name of the model stands in a body.
func modelAt(body string) int {
	const part = "name=\"model\"\r\n\r\n"
	if i := strings.Index(body, part); i >= 0 {
		return i + len(part)
	}
	return strings.LastIndex(body, `"pub"`) + 1
}

// mediaCase is a request for a server, and what the client gets.
type mediaCase struct {
	server      upstream.Handler
	path, body  string
	status      int
	contentType string
	want        string
}

const listen = "/v1/audio/transcriptions"

// refusal is the gateway's error for one of a server.
func refusal(message string) string {
	return `{"error":{"message":"` + message + `","type":"invalid_request_error","param":null,"code":null}}` + "\n"
}

// largeServers are cases of vLLM and LocalAI.
func largeServers(m *upstream.Media) map[string]mediaCase {
	const rank = `{"query":"q","documents":["a","pub"],"top_n":%d,"model":"pub"}`
	const ranked = `{"id":"score-1","model":"pub","usage":{"prompt_tokens":9,"total_tokens":9},"results":[` +
		`{"index":1,"document":{"text":"pub","multi_modal":null},"relevance_score":0.1},` +
		`{"index":0,"document":{"text":"a","multi_modal":null},"relevance_score":0.0}]}`
	const chunk = `data: {"id":"trsc-1","object":"transcription.chunk","created":1700000000,"model":"pub","choices":` +
		`[{"delta":{"content":"%s"},"finish_reason":%s}]}` + "\n\n"
	return map[string]mediaCase{
		"vLLM, seconds as a text": {
			m.VLLM, listen, form("file", "pub", "response_format=verbose_json"), 200,
			"application/json", `{"duration":"2.5","language":"en","text":"` + upstream.Heard +
				`","segments":[{"id":0,"text":"` + upstream.Heard + `"}]}`,
		},
		"vLLM, text as JSON": {
			m.VLLM, listen, form("file", "pub", "response_format=text"), 200, "application/json",
			`"` + upstream.Heard + `"`,
		},
		"vLLM, events": {
			m.VLLM, listen, form("file", "pub", "stream=true"), 200, "text/event-stream",
			fmt.Sprintf(chunk+chunk, upstream.Heard[:4], "null", upstream.Heard[4:], `"stop"`) + upstream.Done,
		},
		"vLLM, another format": {
			m.VLLM, listen, form("file", "pub", "response_format=srt"), 400, "application/json",
			refusal("Unsupported request."),
		},
		"vLLM, rerank": {m.VLLM, "/v1/rerank", fmt.Sprintf(rank, 0), 200, "application/json", ranked},
		"LocalAI, SRT": {
			m.LocalAI, listen, form("file", "pub", "response_format=srt"), 200,
			"text/plain; charset=UTF-8", "1\n00:00:00,000 --> 00:00:02,500\n" + upstream.Heard + "\n",
		},
		"LocalAI, rerank": {m.LocalAI, "/v1/reranking", fmt.Sprintf(rank, 1), 200, "application/json", ranked},
		"LocalAI, rerank of none": {
			m.LocalAI, "/v1/rerank", fmt.Sprintf(rank, 0), 400, "application/json",
			refusal(`\"top_n - should be greater than or equal to 1\"`),
		},
		"LocalAI, image": {
			m.LocalAI, "/v1/images/generations", `{"prompt":"pub", "model" : "pub"}`, 200, "application/json",
			`{"created":1700000000,"id":"1","data":[{"embedding":null,"index":0,` +
				`"url":"http://127.0.0.1:8080/generated-images/b641.png"}],"usage":{"prompt_tokens":0,"completion_tokens":0,` +
				`"total_tokens":0}}`,
		},
	}
}

// speechServers are cases of servers for speech, and of one for images.
func speechServers(m *upstream.Media) map[string]mediaCase {
	return map[string]mediaCase{
		"speaches, VTT": {
			m.Speaches, listen, form("file", "pub", "response_format=vtt"), 200, "text/vtt",
			upstream.Subtitles,
		},
		"speaches, events": {
			m.Speaches, listen, form("file", "pub", "stream=true"), 200, "text/event-stream",
			`data: {"type":"transcript.text.delta","delta":"` + upstream.Heard + `","logprobs":null}` + "\n\n" +
				`data: {"type":"transcript.text.done","text":""}` + "\n\n",
		},
		"speaches, another format": {
			m.Speaches, listen, form("file", "pub", "response_format=lrc"), 400, "application/json",
			refusal("body.response_format: Input should be another format"),
		},
		"Kokoro, events are bytes": {
			m.Kokoro, "/v1/audio/speech", `{"input":"pub","stream_format":"sse","model":"pub"}`, 200,
			"audio/mpeg", upstream.Sound[0] + upstream.Sound[1],
		},
		"Kokoro, no input": {
			m.Kokoro, "/v1/audio/speech", `{"input":"","model":"pub"}`, 400, "application/json",
			refusal("No input."),
		},
		"Kokoro, voices": {
			m.Kokoro, "/v1/audio/voices?x=y&model=pub", "", 200, "application/json",
			`{"voices":[{"id":"af_heart","name":"af_heart"}]}`,
		},
		"sd-server": {
			m.SD, "/v1/images/edits", form("image[]", "pub", "prompt=pub"), 200, "application/json",
			`{"created":1700000000,"data":[{"b64_json":"` + upstream.Pixel + `"}],"output_format":"png"}`,
		},
	}
}

// Servers that serve the same paths differ in their answers: each passes as it is, except for the name of the model.
// Each request comes as the client has sent it, except for that name.
func testMediaServers(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	r.Deploy(t, "pub", r.con.ID, "", "up")
	next := make(chan struct{})
	close(next)
	m := &upstream.Media{Model: "up", Next: next}
	cases := largeServers(m)
	maps.Copy(cases, speechServers(m))
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			r.up.Handle("", test.server)
			method, header := http.MethodPost, "Content-Type: application/json"
			switch {
			case test.body == "":
				method = http.MethodGet
			case test.body[0] != '{':
				header = formHeader
			}
			a := r.Do(t, method, test.path, test.body, header)
			if ct := a.Header.Get("Content-Type"); a.Status != test.status || a.Err != nil || a.Body != test.want ||
				ct != test.contentType {
				t.Errorf("status %d, %v, %s, %q; want %d, %s, %q", a.Status, a.Err, ct, a.Body, test.status, test.contentType,
					test.want)
			}
			want := test.body
			if at := modelAt(want); want != "" {
				want = want[:at] + "up" + want[at+len("pub"):]
			}
			if got := r.up.Last(t); string(got.Body) != want ||
				want != "" && "Content-Type: "+got.Header.Get("Content-Type") != header {
				t.Errorf("the server got %s, %q; want %q", got.Header.Get("Content-Type"), got.Body, want)
			}
		})
	}
}

// The first piece of speech arrives before the server sends the second.
func testSpeechIsNotBuffered(t *testing.T, g *harness.Gateway) {
	r, next := rigOf(t, g), make(chan struct{})
	r.serve(t, "speech", (&upstream.Media{Model: up("speech"), Next: next}).Kokoro)
	s := r.Open(t, "/v1/audio/speech", `{"model":"speech","input":"hello","voice":"af_heart"}`)
	first := make([]byte, len(upstream.Sound[0]))
	if _, err := io.ReadFull(s, first); err != nil || string(first) != upstream.Sound[0] {
		t.Fatalf("the first piece is %q, %v", first, err)
	}
	close(next)
	if rest, err := s.Rest(); err != nil || rest != upstream.Sound[1] {
		t.Errorf("the second piece is %q, %v", rest, err)
	}
	// A proxy in front of the gateway must not hold it, either.
	if s.Header.Get("X-Accel-Buffering") != "no" || s.Header.Get("Content-Disposition") == "" {
		t.Errorf("the headers are %v", s.Header)
	}
}

// A client that leaves ends the work of the model server: during speech, before an image, and before a transcription.
func testMediaCancel(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	silent := func(x *upstream.Exchange) { x.Hold(nil) }
	r.serve(t, "speech", (&upstream.Media{Model: up("speech")}).Kokoro)
	r.serve(t, "image", silent)
	r.up.Handle("", silent) // of forms
	for _, test := range []struct{ path, body, header, model string }{
		{"/v1/audio/speech", `{"model":"speech","input":"hello"}`, "Content-Type: application/json", up("speech")},
		{"/v1/images/generations", `{"model":"image","prompt":"a"}`, "Content-Type: application/json", up("image")},
		{"/v1/audio/transcriptions", form("file", "image"), formHeader, ""},
	} {
		t.Run(test.path, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			ended := make(chan error, 1)
			req := r.Request(ctx, t, http.MethodPost, test.path, test.body, test.header)
			go func() { _, err := r.Send(req); ended <- err }()
			r.up.WaitRunning(t, 1)
			leave()
			wait.For(t, ended, "the end of the request")
			harness.Poll(t, limit, "the cancel", nilContext(func() error {
				if n := len(r.up.Gone(test.model)); n != 1 {
					return fmt.Errorf("the server has noticed %d", n)
				}
				return nil
			}))
		})
	}
}

// A key without the model is refused before its file is sent.
func testMediaScope(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	r.serve(t, "listen", (&upstream.Media{Model: up("listen")}).Speaches)
	_, key := r.Gateway.Key(t, "other", "other")
	c := r.Gateway.Client(t, key)
	file, upload := io.Pipe()
	defer upload.Close() // the file is never sent
	model := "--" + boundary + "\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nlisten\r\n--" + boundary + "\r\n"
	for _, length := range []int64{-1, 20_000_000} {
		t.Run(fmt.Sprint("length ", length), func(t *testing.T) {
			req := c.Request(t.Context(), t, http.MethodPost, "/v1/audio/transcriptions", "", formHeader)
			req.Body, req.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(model), file)), length
			answer := make(chan harness.Answer, 1)
			go func() {
				a, err := c.Send(req)
				a.Err = errors.Join(a.Err, err)
				answer <- a
			}()
			a := wait.For(t, answer, "an answer before the file")
			if a.ExpectError(t, 404, "invalid_request_error", "model_not_found"); a.Err != nil {
				t.Error(a.Err)
			}
		})
	}
	if n := len(r.up.Requests()); n != 0 {
		t.Errorf("the server got %d requests", n)
	}
}

// 64 uploads of 20 MB are sent at once: as many wait as the memory budget allows, the others are refused when they have
// waited. The gateway has no more memory than that, and a chat is answered meanwhile.
func TestUploads(t *testing.T) {
	t.Parallel()
	const uploads, places, size, budget = 64, 2, 20_000_000, 256 << 20
	r := newRig(t, harness.Options{Site: "queue_wait 1h", App: fmt.Sprintf("max_memory %dMiB", budget>>20)})
	r.serve(t, "chat", upstream.Echo)
	r.Manage(t, http.MethodPut, "/deployments/listen",
		map[string]any{"connectors": []string{"box"}, "model": "listen", "max_concurrency": places}, nil)
	release := make(chan struct{})
	var running atomic.Int32
	r.up.Handle("", func(x *upstream.Exchange) {
		running.Add(1)
		x.Hold(release)
		(&upstream.Media{Model: "listen"}).Speaches(x)
	})
	_, key := r.Gateway.Key(t, "writer", "*")
	writer := r.Gateway.Client(t, key)
	before := peakMemory(t, r.Gateway.Process)
	head, tail, _ := strings.Cut(form("file", "listen"), "RIFF")
	file := bytes.Repeat([]byte("audio\r\n-"), size/8)
	answers := make(chan harness.Answer, uploads)
	for i := range uploads {
		req := r.Request(t.Context(), t, http.MethodPost, "/v1/audio/transcriptions", "", formHeader)
		req.Body = io.NopCloser(io.MultiReader(strings.NewReader(head), bytes.NewReader(file), strings.NewReader(tail)))
		if req.ContentLength = -1; i%2 == 0 { // half of the clients send no length
			req.ContentLength = int64(len(head) + len(file) + len(tail))
		}
		go func() {
			a, err := r.Send(req)
			a.Err = errors.Join(a.Err, err)
			answers <- a
		}()
	}
	harness.Poll(t, limit, "uploads at the server", nilContext(func() error {
		if n := running.Load(); n != places {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	}))
	served(t, writer.Post(t, harness.Chat("chat", "")), "a chat")
	refused, heard := 0, 0
	take := func() {
		switch a := wait.For(t, answers, "an answer"); {
		case a.Status == http.StatusOK && a.Err == nil && strings.Contains(a.Body, upstream.Heard):
			heard++
		case a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") != "":
			refused++
		default:
			t.Errorf("status %d, %v, %s", a.Status, a.Err, clip(a.Body))
		}
	}
	take() // one that has waited for memory
	close(release)
	served(t, writer.Post(t, harness.Chat("chat", "")), "another chat")
	for range uploads - 1 {
		take()
	}
	if refused == 0 || heard < places {
		t.Errorf("%d uploads were answered, %d refused", heard, refused)
	}
	grown := peakMemory(t, r.Gateway.Process) - before
	t.Logf("%d answered, %d refused, the memory grew by %d MiB", heard, refused, grown>>20)
	if grown > 2*budget { // as much garbage as data is normal
		t.Errorf("the gateway's memory grew by %d bytes", grown)
	}
	debug.FreeOSMemory() // of the bodies that the server has kept
}
