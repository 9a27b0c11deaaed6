package dialect

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/tests/rig/odd"
)

// FuzzScanRequest compares the scanner and its edits with encoding/json.
func FuzzScanRequest(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[]}`,
		`{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":false,"a":[1,{"b":null}]}}`,
		`{"max_completion_tokens":1,"model":"\u006d","messages":[{"role":"user","content":"x"}],"max_tokens":null,` +
			`"stream":true}`,
		`{"model":"m","messages":[],"stream":true,"stream_options":null}`,
		`{"model":"m","MODEL":"n","messages":[]}`, ` {} `, `[`, `{"model":"a"}}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x"}},` +
			`{"image":["http://x","data:,"]},{"file":{"file_data":"http://x"}}]}]}`,
		`{"model":"m","messages":[{"content":[{"content":[{"video_path":"/x"},{"Media":"http://x"}]},` +
			`{"image_embeds":{"image_embeds":"x"}}]}]}`,
		`{"model":"m","messages":[],"max_tokens":0,"max_completion_tokens":0,"n_predict":-1,"max_new_tokens":1e9,"n":4,` +
			`"n_cmpl":5}`,
		`{"model":"m","messages":[],"N_Predict":0,"N":128,"beſt_of":2,"API_BASE":"http://x","aws_region_name":"x"}`,
	} {
		f.Add([]byte(s))
	}
	for _, shape := range odd.Shapes {
		f.Add([]byte(shape))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		keep := bytes.Clone(body)
		for _, kind := range []OperationKind{Completions, Embeddings} {
			if r, derr := scanRequest(Operation{Kind: kind, Dialect: Chat}, body, ""); derr == nil &&
				!json.Valid([]byte(bodyOf(t, r.Body("up")))) {
				t.Fatalf("kind %d: the upstream's body is not JSON", kind)
			}
		}
		r, derr := scanRequest(chatOp, body, "")
		if derr != nil {
			if !json.Valid(derr.Body(Chat, "req_1")) {
				t.Fatalf("the error is not JSON: %s", derr.Body(Chat, "req_1"))
			}
			return
		}
		var in struct {
			Model         string
			Stream        *bool
			StreamOptions *struct {
				IncludeUsage *bool `json:"include_usage"`
			} `json:"stream_options"`
			MaxTokens, MaxCompletionTokens json.RawMessage
		}
		if err := json.Unmarshal(body, &in); err != nil {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		stream := in.Stream != nil && *in.Stream
		if in.Model != r.Model || stream != r.Stream {
			t.Fatalf("got model %q, stream %v; encoding/json has %q, %v", r.Model, r.Stream, in.Model, stream)
		}
		checkUpstreamBody(t, body, []byte(bodyOf(t, r.Body("up"))), stream)
		countPrompt(r)
		if !bytes.Equal(keep, body) {
			t.Fatal("the body was changed")
		}
		checkLimited(t, r)
		for m := jsonscan.Object(body); m.Next(); {
			if isLike(m.Name(), "messages") && r.checkMedia(member{m.Key, m.Value}) != nil &&
				r.applyOptions(compat.Options{}) == nil {
				t.Fatal("an address of media was not noticed while the body was scanned")
			}
		}
	})
}

// checkUpstreamBody checks an upstream's body against the client's.
func checkUpstreamBody(t *testing.T, in, out []byte, stream bool) {
	t.Helper()
	var want, got map[string]any
	if err := json.Unmarshal(in, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("upstream's body: %v\n%s", err, out)
	}
	want["model"] = "up"
	if limit := want["max_completion_tokens"]; limit != nil && want["max_tokens"] == nil {
		want["max_tokens"] = limit
	}
	options, _ := want["stream_options"].(map[string]any)
	if stream {
		if options == nil {
			options = map[string]any{}
		}
		options["include_usage"] = true
		want["stream_options"] = options
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("upstream's body\n got %v\nwant %v", got, want)
	}
}
