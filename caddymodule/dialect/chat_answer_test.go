package dialect

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/rig/odd"
)

func TestRewriteCompletion(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"model", `{"id":"c","model":"up","choices":[]}`, `{"id":"c","model":"pub","choices":[]}`},
		{
			"all else survives",
			"\n{ \"x\":1e3,\"timings\":{\"model\":\"up\"},\"model\" : null , " +
				"\"x\":0.10,\"error\":null,\"choices\":[{\"message\":{\"reasoning_content\":\"\\u00e9\"}}] }\n",
			"\n{ \"x\":1e3,\"timings\":{\"model\":\"up\"},\"model\" : \"pub\" , " +
				"\"x\":0.10,\"error\":null,\"choices\":[{\"message\":{\"reasoning_content\":\"\\u00e9\"}}] }\n",
		},
		{"no model", `{"object":"list","data":[[0.1,-2e-5]]}`, `{"object":"list","data":[[0.1,-2e-5]]}`},
		{"empty object", `{}`, `{}`},
	} {
		got, _, err := rewriteCompletion([]byte(tt.in), "pub", nil)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %v\n got %s\nwant %s", tt.name, err, got, tt.want)
		}
	}
	_, usage, err := rewriteCompletion([]byte(costs), "pub", nil)
	if want := (Usage{PromptTokens: 100, CompletionTokens: 7, CachedTokens: 75, ReasoningTokens: 3}); err != nil ||
		usage != want {
		t.Errorf("usage %+v, %v", usage, err)
	}
}

// answersThatFail are whole answers with status 200 that are errors.
var answersThatFail = []struct{ in, message string }{
	{"", "is empty"},
	{" \n", "is empty"},
	{"[]", "a valid JSON object: []"},
	{"null", "a valid JSON object: null"},
	{`{"choices":[]`, `a valid JSON object: {"choices":[]`},
	{`{"choices":[]} x`, "a valid JSON object"},
	{"<html><body>It <b>works</b>!</body></html>", "a valid JSON object: It works !"},
	{`{"error":{"message":"boom","code":500}}`, "reported an error: boom"},
	{`{"error":"boom"}`, "reported an error: boom"},
	{`{"object":"error","message":"boom"}`, "reported an error: boom"},
}

func TestAnswersThatFail(t *testing.T) {
	for _, tt := range answersThatFail {
		if _, _, err := rewriteCompletion([]byte(tt.in), "pub", nil); err == nil || err.Kind != KindUpstream ||
			!strings.Contains(err.Message, tt.message) {
			t.Errorf("rewriting %q: %v", tt.in, err)
		}
		if _, err := ReplayAsStream([]byte(tt.in)); err == nil || err.Kind != KindUpstream ||
			!strings.Contains(err.Message, tt.message) {
			t.Errorf("replaying %q: %v", tt.in, err)
		}
	}
	for _, in := range []string{`{}`, `{"choices":null}`, `{"choices":{}}`} {
		if _, err := ReplayAsStream([]byte(in)); err == nil || !strings.Contains(err.Message, "no choices") {
			t.Errorf("replaying %q: %v", in, err)
		}
	}
}

func TestReplayAsStream(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{
			"text, with what only this server knows",
			"{\"id\":\"c1\",\"object\":\"chat.completion\",\"created\":7,\n " +
				"\"model\":\"up\",\"timings\":{\"a\":1.50},\"choices\":[{\"index\":0,\"finish_reason\":\"stop\"," +
				"\"message\":{\"role\":\"assistant\",\n\"content\":\"hi\"},\"stop_reason\":null}]," +
				"\"usage\":{\"prompt_tokens\":1}}",
			eventsOf(`{"id":"c1","object":"chat.completion.chunk","created":7,  "model":"up","timings":{"a":1.50},`+
				`"choices":[{"index":0,"finish_reason":"stop","delta":{"role":"assistant", "content":"hi"},"stop_reason":null}],`+
				`"usage":null}`,
				`{"id":"c1","object":"chat.completion.chunk","created":7,  "model":"up","timings":{"a":1.50},"choices":[],`+
					`"usage":{"prompt_tokens":1}}`, done),
		},
		{
			"tool calls get an index",
			`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},` +
				`{"index":null,"function":{"name":"g"}},{"index":2,"id":"c","type":"custom","custom":{"name":"h","input":"x"}},` +
				`7]},"finish_reason":"tool_calls"}]}`,
			eventsOf(`{"choices":[{"index":0,"delta":{"content":null,"tool_calls":[{"index":0,"id":"a",`+
				`"function":{"name":"f","arguments":"{}"}},{"index":1,"function":{"name":"g"}},{"index":2,"id":"c",`+
				`"type":"custom","custom":{"name":"h","input":"x"}},7]},"finish_reason":"tool_calls"}]}`, done),
		},
		{
			"two choices without an index, one without a message, with probabilities",
			`{"choices":[{"message":{"content":"a"},"finish_reason":"stop"},{"message":null,"finish_reason":"length",` +
				`"logprobs":{"content":[]}}]}`,
			eventsOf(`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"},{"index":1,"delta":{},`+
				`"finish_reason":"length","logprobs":{"content":[]}}]}`, done),
		},
		{
			"a text completion",
			`{"object":"text_completion","choices":[{"text":"a","index":0,"logprobs":null,"finish_reason":"stop"}],` +
				`"usage":null}`,
			eventsOf(`{"object":"text_completion","choices":[{"text":"a","index":0,"logprobs":null,"finish_reason":"stop"}],`+
				`"usage":null}`, done),
		},
	} {
		got, err := ReplayAsStream([]byte(tt.in))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %v\n got %s\nwant %s", tt.name, err, got, tt.want)
			continue
		}
		out, s := runStream(ChatStreamOptions{Model: "pub"}, nil, got)
		if s.Err() != nil || !strings.HasSuffix(out, doneEvent) {
			t.Errorf("%s: streamed: %v: %s", tt.name, s.Err(), out)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	for _, tt := range answersThatFail {
		f.Add([]byte(tt.in))
	}
	f.Add([]byte(`{"id":"c1","model":"up","model":7,"choices":[{"index":0,"message":{"content":"a",` +
		`"tool_calls":[{"id":"x"},{"index":null}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`))
	for _, shape := range odd.Shapes {
		f.Add([]byte(shape))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, d := range []Dialect{Messages, Responses} {
			r := testCall(withTools, wantProbs, wantTags)
			r.dialect = d
			if out, _, err := encodeWhole(body, r); err == nil && !json.Valid(out) {
				t.Fatalf("in %s: %s", d, out)
			}
		}
		stream, replayErr := ReplayAsStream(body)
		got, _, err := rewriteCompletion(body, "pub", &AnswerInfo{Wanted: true})
		if err != nil {
			if replayErr == nil {
				t.Fatalf("replayed what cannot be rewritten: %v", err)
			}
			return
		}
		var before, after map[string]any
		if json.Unmarshal(body, &before) != nil || json.Unmarshal(got, &after) != nil {
			t.Fatalf("no JSON: %s", got)
		}
		if _, ok := before["model"]; ok {
			before["model"] = "pub"
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("got %s", got)
		}
		if replayErr == nil {
			out, s := runStream(ChatStreamOptions{Model: "pub", IncludeUsage: true}, nil, stream)
			checkClientStream(t, out, s, true)
			// It may have one more event: for a missing finish_reason.
			if bytes.Count(stream, []byte("\n\n")) > strings.Count(out, "\n\n") && s.Err() == nil {
				t.Fatalf("replayed %q, client sees %q", stream, out)
			}
		}
	})
}
