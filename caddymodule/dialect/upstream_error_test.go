package dialect

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postern-dev/postern/tests/rig/odd"
)

// upstreamAnswers are answers of upstreams, and their errors.
var upstreamAnswers = []struct {
	name    string
	status  int
	body    string
	kind    *Kind
	code    string
	message string // the whole one, or its end behind "…"
	noRetry bool
}{
	// shapes of bodies
	{
		"llama.cpp, code a number", 400, `{"error":{"code":400,"message":"bad grammar","type":"invalid_request_error"}}`,
		KindInvalidRequest, "", "bad grammar", false,
	},
	{
		"Ollama", 400, `{"error":{"message":"bad role","type":"invalid_request_error","param":null,"code":null}}`,
		KindInvalidRequest, "", "bad role", false,
	},
	{
		"code a string", 400, `{"error":{"message":"no","code":"unsupported_value"}}`, KindInvalidRequest,
		"unsupported_value", "no", false,
	},
	{"error a string", 400, `{"error":"no such thing"}`, KindInvalidRequest, "", "no such thing", false},
	{"FastAPI text", 422, `{"detail":"Not like this"}`, KindInvalidRequest, "", "Not like this", false},
	{"FastAPI list", 422, `{"detail":[{"loc":["body","messages",0,"role"],"msg":"field required","type":"x"},{"loc":[],` +
		`"msg":"bad"}]}`, KindInvalidRequest, "", "body.messages.0.role: field required; bad", false},
	{"FastAPI object", 422, `{"detail":{"message":"inner"}}`, KindInvalidRequest, "", "inner", false},
	{"FastAPI odd list", 422, `{"detail":["a","b"]}`, KindInvalidRequest, "", `["a","b"]`, false},
	{"message", 400, `{"message":"plain"}`, KindInvalidRequest, "", "plain", false},
	{
		"JSON inside of message", 400, `{"error":{"message":"{\"error\":{\"code\":400,\"message\":\"deep\"}}","type":"x"}}`,
		KindInvalidRequest, "", "deep", false,
	},
	{"JSON of no known shape", 400, `{"foo":1}`, KindInvalidRequest, "", `{"foo":1}`, false},
	{"text", 400, "  malformed request\n", KindInvalidRequest, "", "malformed request", false},
	{"empty", 400, "", KindInvalidRequest, "", "upstream returned HTTP 400", false},
	{"empty error", 400, `{"error":{}}`, KindInvalidRequest, "", "…{}}", false},
	{
		"text with <angles> is no HTML", 400, `{"error":"use <think> & a<b"}`, KindInvalidRequest, "",
		"use <think> & a<b", false,
	},

	// statuses
	{"413", 413, `{"error":"large"}`, KindInvalidRequest, "", "large", false},
	{
		"401", 401, `{"error":{"message":"Incorrect API key: sk-abc"}}`, KindUpstreamAuth, "",
		"…check the upstream's API key in its configuration.", true,
	},
	{"402", 402, ``, KindUpstreamAuth, "", "…configuration.", true},
	{
		"403 of Ollama for a cloud model", 403,
		`{"error":{"message":"ollama cloud is disabled: remote model is unavailable"}}`, KindUpstream, "",
		"…is unavailable. This model runs in Ollama's cloud, which is turned off in Ollama's settings. Use a local model.",
		true,
	},
	{
		"404 of Ollama", 404, `{"error":{"message":"model 'llama3.2:3b' not found"}}`, KindUnknownModel, "",
		`…HTTP 404: model 'llama3.2:3b' not found. Load the model there; with Ollama, run "ollama pull".`, false,
	},
	{
		"404 of vLLM", 404, "{\"error\":{\"message\":\"The model `x` does not exist.\"}}", KindUnknownModel, "",
		"…HTTP 404: The model `x` does not exist. Load the model there; with Ollama, run \"ollama pull\".",
		false,
	},
	{"405", 405, `405 method not allowed`, KindUpstream, "", "…HTTP 405: 405 method not allowed", true},
	{"408", 408, ``, KindTimeout, "", "…HTTP 408: upstream returned HTTP 408", false},
	{"415, empty", 415, ``, KindUpstream, "", "…HTTP 415", true},
	{"501", 501, `{"error":{"message":"no embeddings"}}`, KindUpstream, "", "…HTTP 501: no embeddings", true},
	{"529", 529, ``, KindOverloaded, "", "…HTTP 529", false},
	{"304, empty", 304, ``, KindUpstream, "", "…to the target.", true},
	{"204", 204, ``, KindUpstream, "", "The model server answered HTTP 204: upstream returned HTTP 204", true},

	// 500s that are the client's fault
	{"image", 500, `{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you ` +
		`may need to provide the mmproj"}}`, KindInvalidRequest, "", "…the mmproj", false},
	{"audio", 500, `{"error":{"message":"audio input is not supported"}}`, KindInvalidRequest, "", "…supported", false},
	{"tools", 500, `{"error":{"message":"\"m\" does not support tools"}}`, KindInvalidRequest, "", "…tools", false},
	{"tools type", 500, `{"error":{"message":"tools: must be an array"}}`, KindInvalidRequest, "", "…array", false},
	{
		"tool JSON", 500, `{"error":{"message":"Failed to parse tool call arguments as JSON"}}`, KindInvalidRequest, "",
		"…JSON", false,
	},
	{"role", 500, `{"error":{"message":"Missing 'role' in message: {}"}}`, KindInvalidRequest, "", "…{}", false},
	{"but 503 is not", 503, `{"error":{"message":"failed to parse"}}`, KindOverloaded, "", "…parse", false},
}

func TestFromUpstream(t *testing.T) {
	for _, tt := range upstreamAnswers {
		t.Run(tt.name, func(t *testing.T) {
			e := FromUpstream(tt.status, nil, []byte(tt.body))
			end, isEnd := strings.CutPrefix(tt.message, "…")
			if e.Kind != tt.kind || e.Code != tt.code || e.NoRetry != tt.noRetry || !isEnd && e.Message != tt.message ||
				!strings.HasSuffix(e.Message, end) {
				t.Errorf("got %+v", e)
			}
			if strings.Contains(e.Message, "sk-abc") {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestFromUpstreamContextLength(t *testing.T) {
	for _, tt := range []struct {
		name     string
		status   int
		body     string
		messages string
	}{
		{
			"llama.cpp", 400, `{"error":{"code":400,"message":"request (13392 tokens) exceeds the available context size ` +
				`(8192 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":13392,"n_ctx":8192}}`,
			"prompt is too long: 13392 tokens > 8192 maximum",
		},
		{
			"llama.cpp, sizes in the text only", 400,
			`{"error":{"message":"request (13392 tokens) exceeds the available context size (8192 tokens)"}}`,
			"prompt is too long: 13392 tokens > 8192 maximum",
		},
		{
			"llama.cpp, no sizes", 400, `{"error":{"message":"the request exceeds the available context size"}}`,
			"prompt is too long: the request exceeds the available context size",
		},
		{"vLLM", 400, `{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested ` +
			`5000 tokens (4900 in the messages, 100 in the completion)."}}`, "prompt is too long: 4900 tokens > 4096 maximum"},
		{
			"vLLM, no request size", 400, `{"object":"error","message":"maximum context length is 4096 tokens"}`,
			"prompt is too long: maximum context length is 4096 tokens",
		},
		{
			"SGLang", 400, `{"message":"The input (5000 tokens) is longer than the model's context length (4096 tokens)."}`,
			"prompt is too long: 5000 tokens > 4096 maximum",
		},
		{"by code", 400, `{"error":{"message":"nope","code":"context_length_exceeded"}}`, "prompt is too long: nope"},
		{"by type", 400, `{"error":{"message":"nope","type":"exceed_context_size_error"}}`, "prompt is too long: nope"},
		{
			"as 500", 500, `{"error":{"message":"input is too long for n_ctx"}}`,
			"prompt is too long: input is too long for n_ctx",
		},
		{"as 413", 413, `prompt is too long: 9 tokens`, "prompt is too long: 9 tokens"},
		{"Context Length … exceeded", 422, `Context Length was exceeded`, "prompt is too long: Context Length was exceeded"},
		{
			"numbers beyond all bounds", 400, `maximum context length is 99999999999999999999 tokens`,
			"prompt is too long: maximum context length is 99999999999999999999 tokens",
		},
	} {
		e := FromUpstream(tt.status, nil, []byte(tt.body))
		if e.Kind != KindContextLength {
			t.Errorf("%s: %+v", tt.name, e)
			continue
		}
		checkOpenAI(t, e.Body(Chat, ""), "invalid_request_error", "context_length_exceeded", "messages")
		checkOpenAI(t, e.Body(Responses, ""), "invalid_request_error", "context_length_exceeded", "input")
		checkMessages(t, e.Body(Messages, "req_1"), "invalid_request_error")
		if got := e.rendered(Messages).Message; got != tt.messages || e.HTTPStatus(Messages) != 400 {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	if e := FromUpstream(429, nil, []byte(`maximum context length`)); e.Kind != KindRateLimit {
		t.Errorf("429 about context: %+v", e)
	}
}

func TestFromUpstreamRetryAfter(t *testing.T) {
	const date = "Sat, 21 Nov 2026 10:00:00 GMT"
	for _, tt := range []struct {
		status int
		h      map[string]string
		want   int
	}{
		{429, nil, 1},
		{503, nil, 5},
		{500, map[string]string{"Retry-After": "9"}, 0},
		{429, map[string]string{"Retry-After": "9"}, 9},
		{503, map[string]string{"Retry-After": "30"}, 30},
		{429, map[string]string{"Retry-After-Ms": "1500", "Retry-After": "9"}, 2},
		{429, map[string]string{"Retry-After": "0"}, 1},
		{429, map[string]string{"Retry-After": "-3"}, 1},
		{429, map[string]string{"Retry-After": "soon"}, 1},
		{429, map[string]string{"Retry-After": "9223372036854775807"}, 86400},
		{429, map[string]string{"Retry-After-Ms": "9223372036854775807"}, 86400},
		{429, map[string]string{"Retry-After": "Sat, 21 Nov 2026 10:00:12 GMT", "Date": date}, 12},
		{429, map[string]string{"Retry-After": "Sat, 21 Nov 2026 10:00:12 GMT"}, 1},
		{429, map[string]string{"Retry-After": "Sat, 21 Nov 2020 10:00:12 GMT", "Date": date}, 1},
	} {
		h := http.Header{}
		for k, v := range tt.h {
			h.Set(k, v)
		}
		if e := FromUpstream(tt.status, h, nil); e.RetryAfter != tt.want {
			t.Errorf("%d %v: %d s, want %d", tt.status, tt.h, e.RetryAfter, tt.want)
		}
	}
}

func TestFromUpstreamKnowsAModelWithoutEfforts(t *testing.T) {
	for message, want := range map[string]bool{
		`\"llama3.2\" does not support thinking`: true, "This model Does not support reasoning": true,
		"does not support tools": false, "thinking": false,
	} {
		for _, status := range []int{400, 500} {
			if e := FromUpstream(status, nil,
				[]byte(`{"error":{"message":"`+message+`"}}`)); e.RefusesEffort != want {
				t.Errorf("%d %s: %+v", status, message, e)
			}
		}
	}
	for _, message := range []string{
		"reasoning_effort: Input should be 'low', 'medium' or 'high'", "invalid reasoning value: 'xhigh'",
	} {
		if e := FromUpstream(400, nil, []byte(`{"error":{"message":"`+message+`"}}`)); !e.RefusesEffort {
			t.Errorf("%s: %+v", message, e)
		}
	}
}

func TestFromUpstreamBoundsMessages(t *testing.T) {
	for _, body := range []string{
		strings.Repeat("日", 1<<20),
		`{"error":"` + strings.Repeat("é", 10<<10) + `"}`,
		`{"error":"` + strings.Repeat("é", 2<<20) + `"}`,
		"<html>" + strings.Repeat("<b>x</b>", 1<<20),
		strings.Repeat("\xff", 1<<20),
		`{"error":` + strings.Repeat(`{"error":`, 5000) + `1` + strings.Repeat(`}`, 5001),
		`{"detail":[` + strings.Repeat(`{"loc":["body"],"msg":"`+strings.Repeat("x", 1000)+`"},`, 20) + `{}]}`,
	} {
		e := FromUpstream(400, nil, []byte(body))
		if len(e.Message) > maxMessage || !utf8.ValidString(e.Message) || e.Message == "" {
			t.Errorf("%.20q: %d bytes: %.80q", body, len(e.Message), e.Message)
		}
	}
}

func FuzzFromUpstream(f *testing.F) {
	for _, s := range []string{
		``, `{"error":{"message":"x","code":400}}`, `{"error":"x"}`, `{"detail":[{"loc":["a",1],"msg":"b"}]}`,
		`{"message":"{\"error\":\"x\"}"}`,
		`<html><body>a &lt; b</body>`, `request (5 tokens) exceeds the available context size (4 tokens)`,
		`{"error":null}`, "\xff",
	} {
		f.Add(400, []byte(s), "3")
	}
	f.Add(500, []byte(`cannot use tools with stream`), "")
	for _, shape := range odd.Shapes {
		f.Add(400, []byte(shape), "")
	}
	f.Fuzz(func(t *testing.T, status int, body []byte, retryAfter string) {
		h := http.Header{"Retry-After": {retryAfter}, "Retry-After-Ms": {retryAfter}}
		for _, e := range []*Error{FromUpstream(status, h, body), fromEvent(body), garbled(body)} {
			for _, d := range []Dialect{Chat, Responses, Messages} {
				if s := e.HTTPStatus(d); s < 400 || s > 599 {
					t.Fatalf("status %d", s)
				}
				if b := e.Body(d, "req_1"); !json.Valid(b) || !utf8.Valid(b) {
					t.Fatalf("body %q", b)
				}
			}
			if len(e.Message) > maxMessage+200 || e.Message == "" || e.RetryAfter < 0 || e.RetryAfter > 86400 {
				t.Fatalf("%+v", e)
			}
		}
	})
}

// Texts of model servers have a class, which is all that logs and the activity keep of them.
func TestServerErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status      int
		text, class string
	}{
		{500, "CUDA error: out of memory", "out_of_memory"},
		{500, "model requires more system memory (5.6 GiB) than is available (3.1 GiB)", "out_of_memory"},
		{500, "llama runner process has terminated: cudaMalloc failed: out of memory", "out_of_memory"},
		{500, "llama runner exited, you may not have enough available memory to run this model", "out_of_memory"},
		{500, "ggml_backend_cuda_buffer_type_alloc_buffer: alloc failed", "out_of_memory"},
		{500, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory"},
		{400, "the request exceeds the available context size", "context_length"},
		{500, "Context size has been exceeded.", "context_length"},
		{503, "Loading model", "model_loading"},
		{500, "timed out waiting for llama runner to start: context canceled", "model_loading"},
		{500, "unable to load model: /models/blobs/sha256-1", "load_failed"},
		{400, "Failed to load model \"qwen3\". Error: unknown architecture", "load_failed"},
		{400, `registry.ollama.ai/library/gemma3:1b does not support tools`, "no_tools"},
		{500, "tools param requires --jinja flag", "no_tools"},
		{400, `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`, "no_tools"},
		{500, "Error: Jinja Exception: Conversation roles must alternate user/assistant", "bad_template"},
		{400, "System message must be at the beginning.", "bad_template"},
		{400, "default chat template is no longer allowed, so you must provide a chat template", "bad_template"},
		{500, "llama runner process has terminated: exit status 2", "crashed"},
		{500, "CUDA error: an illegal memory access was encountered", "crashed"},
		{500, "EngineCore encountered an issue. See stack trace (above) for the root cause.", "crashed"},
		{500, "The model has crashed without additional information. (Exit code: null)", "crashed"},
		{500, "quartz-sphinx", "other"},
		{422, "bad role", "other"},
	} {
		body, _ := json.Marshal(map[string]any{"error": map[string]any{"message": test.text}})
		e := FromUpstream(test.status, http.Header{}, body)
		if e.ServerError != test.class {
			t.Errorf("%q is %q, not %q", test.text, e.ServerError, test.class)
		}
		if !strings.Contains(e.Message, test.text) {
			t.Errorf("the client gets %q instead of %q", e.Message, test.text)
		}
		if _, logged := e.Logged(); strings.Contains(logged, test.text) {
			t.Errorf("logged: %q", logged)
		}
		if inStream := fromEvent(body); inStream.ServerError != test.class {
			t.Errorf("in a stream, %q is %q, not %q", test.text, inStream.ServerError, test.class)
		}
	}
	if e := FromUpstream(401, http.Header{}, []byte(`{"error":{"message":"out of memory"}}`)); e.ServerError != "" {
		t.Errorf("a text that the client does not get is %q", e.ServerError)
	}
}

// A model that is out of scope is refused. The client gets the same answer as for one that does not exist.
func TestOutOfScope(t *testing.T) {
	t.Parallel()
	refused, unknown := OutOfScope("m", "n"), UnknownModel("m", "n")
	if refused.Class() != ClassPolicy || unknown.Class() != ClassCaller {
		t.Errorf("classes %s and %s", refused.Class(), unknown.Class())
	}
	for _, d := range []Dialect{Chat, Responses, Messages} {
		a, b := refused.Body(d, "req_1"), unknown.Body(d, "req_1")
		if string(a) != string(b) || refused.HTTPStatus(d) != unknown.HTTPStatus(d) {
			t.Errorf("%s: %s instead of %s", d, a, b)
		}
	}
}
