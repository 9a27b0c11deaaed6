package dialect

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
)

// mediaCall returns the call of a JSON body.
func mediaCall(t *testing.T, kind OperationKind, body string, o compat.Options) (Call, *Error) {
	t.Helper()
	head, err := ReadHead(Operation{Kind: kind, Dialect: Chat}, []byte(body), &Env{DefaultModel: "default"})
	if err != nil {
		return nil, err
	}
	return head.Decode(o)
}

// Of a JSON body, only the model is replaced. The fields are the model server's.
func TestMediaBodies(t *testing.T) {
	for kind, test := range map[OperationKind][2]string{
		Rerank: {
			`{ "query":"q","documents":["a"],"top_n":0,"model" : "m","stream":1}`,
			`{ "query":"q","documents":["a"],"top_n":0,"model" : "M","stream":1}`,
		},
		Score:           {`{"model":"m","text_1":1}`, `{"model":"M","text_1":1}`},
		Speech:          {`{"input":"hi","model":"m","max_tokens":3}`, `{"input":"hi","model":"M","max_tokens":3}`},
		ImageGeneration: {`{"prompt":"p"}`, `{"model":"M","prompt":"p"}`},
	} {
		call, err := mediaCall(t, kind, test[0], compat.Options{})
		if err != nil {
			t.Errorf("%s: %v", test[0], err)
			continue
		}
		call.LimitOutput(5)
		if got, _ := io.ReadAll(call.Body("M")); string(got) != test[1] {
			t.Errorf("%s became %s", test[0], got)
		}
	}
	for body, want := range map[string]string{
		`{"model":"m"}`: "Missing required parameter: input", `[]`: "must be a JSON object",
		`{"model":"m","model":"n","input":""}`: "duplicated", `{"MODEL":"m","input":""}`: "did you mean",
	} {
		if _, err := mediaCall(t, Speech, body, compat.Options{}); err == nil || !strings.Contains(err.Message, want) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// Model servers fetch addresses in these fields, too.
func TestRemoteMediaFields(t *testing.T) {
	for field, path := range map[string]string{
		`"image":"http://10.0.0.1/a"`: "image", `"image":["iVBORw0KGgo=","file:///etc/passwd"]`: "image[1]",
		`"images":[{"image_url":"http://a"}]`: "images[0].image_url", `"ref_audio":"https:\/\/a"`: "ref_audio",
		`"documents":[{"content":[{"image_url":{"url":"http://a"}}]}]`: "documents[0].content[0].image_url.url",
		`"mask":"iVBORw0KGgo=","image":["data:image/png;base64,AA=="]`: "", `"documents":["see https://a.b"]`: "",
	} {
		kind := ImageEdit
		if strings.Contains(field, "documents") {
			kind = Rerank
		}
		body := `{"model":"m",` + field + `}`
		_, err := mediaCall(t, kind, body, compat.Options{})
		if path == "" && err != nil || path != "" && (err == nil || err.Param != path) {
			t.Errorf("%s: %v, want %q", body, err, path)
		}
		if _, err := mediaCall(t, kind, body, compat.Options{RemoteMedia: compat.RemoteAllow}); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// Whole answers carry the public name, and what they say about usage is read.
func TestMediaAnswers(t *testing.T) {
	for _, test := range []struct {
		kind       OperationKind
		body, want string
		usage      Usage
	}{
		{
			Rerank, `{"model":"M","results":[],"usage":{"total_tokens":7}}`,
			`{"model":"m","results":[],"usage":{"total_tokens":7}}`,
			Usage{PromptTokens: 7},
		},
		{Rerank, ` [{"index":0,"score":-1.5}]`, ` [{"index":0,"score":-1.5}]`, Usage{}},
		{Transcription, `{"text":"a","duration":"12.5"}`, "", Usage{Amount: 12.5}},
		{Transcription, `{"text":"","usage":{"type":"duration","seconds":3}}`, "", Usage{Amount: 3}},
		{
			Transcription, `{"usage":{"type":"tokens","input_tokens":5,"output_tokens":2,"total_tokens":7},"duration":"x"}`, "",
			Usage{PromptTokens: 5, CompletionTokens: 2},
		},
		{ImageGeneration, `{"created":1,"data":[{"b64_json":"AA"},{"b64_json":"AA"}],"duration":4}`, "", Usage{Amount: 2}},
		{Speech, `{"ok":true}`, "", Usage{Amount: 2}},
	} {
		call, err := mediaCall(t, test.kind, `{"model":"m","input":"hä"}`, compat.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, usage, err := call.Answer([]byte(test.body))
		if want := test.want; err != nil || want != "" && string(got) != want || want == "" && string(got) != test.body ||
			usage != test.usage {
			t.Errorf("%s became %s, %+v, %v", test.body, got, usage, err)
		}
	}
	for _, body := range []string{`{"error":"no"}`, `{"a":`, `nothing`, ``} {
		call, _ := mediaCall(t, Rerank, `{"model":"m"}`, compat.Options{})
		if _, _, err := call.Answer([]byte(body)); err == nil {
			t.Errorf("%s is not an error", body)
		}
	}
}

// Events pass with the public name, wherever the stream is split. A broken stream ends with an error.
func TestMediaStreams(t *testing.T) {
	const events = "event: a\ndata: {\"model\":\"M\",\"choices\":[]}\n\n: ping\n\n" +
		"data: {\"type\":\"image_edit.completed\",\"b64_json\":\"AA\",\"usage\":{\"input_tokens\":4}}\n\ndata: text\n\n"
	const want = "event: a\ndata: {\"model\":\"m\",\"choices\":[]}\n\ndata: {\"type\":\"image_edit.completed\"," +
		"\"b64_json\":\"AA\",\"usage\":{\"input_tokens\":4}}\n\ndata: text\n\n"
	for _, test := range []struct {
		events, want string
		cause        *Error
		fails        string
	}{
		{events, want, nil, ""},
		{events + "data: [DONE]\n\n" + events, want + "data: [DONE]\n\n", nil, ""},
		{events, want, StreamBroken(), "data: {\"error\":{"},
		{events + "data: {\"error\":{\"message\":\"oom\"}}\n\n", want, nil, "oom"},
		{events + "event: error\ndata: {\"message\":\"oom\"}\n\n", want, nil, "oom"},
		{events + "data: {\"model\"", want, nil, "data: {\"error\":{"},
	} {
		for _, n := range []int{1, 10, 1000} {
			call, err := mediaCall(t, ImageEdit, `{"model":"m"}`, compat.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s, got := call.NewStream(), ""
			for rest := test.events; rest != "" && !s.Done(); {
				got += string(s.Feed([]byte(rest[:min(n, len(rest))])))
				rest = rest[min(n, len(rest)):]
			}
			got += string(s.End(test.cause))
			tail, ok := strings.CutPrefix(got, test.want)
			if usage, _ := s.Usage(); !ok || !strings.Contains(tail, test.fails) || (tail == "") != (test.fails == "") ||
				(s.Err() != nil) != (test.fails != "") || fmt.Sprint(usage) != fmt.Sprint(Usage{PromptTokens: 4, Amount: 1}) {
				t.Errorf("%q became %q, %+v, %v", test.events, got, usage, s.Err())
			}
		}
	}
}
