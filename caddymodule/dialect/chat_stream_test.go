package dialect

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/sse"
	"github.com/postern-dev/postern/tests/cut"
	"github.com/postern-dev/postern/tests/rig/odd"
)

// runStream feeds a stream in pieces and ends it.
func runStream(o ChatStreamOptions, cause *Error, pieces ...[]byte) (string, *ChatStream) {
	s := NewChatStream(o)
	var out []byte
	for _, p := range pieces {
		own := slices.Clone(p)
		out = append(out, s.Feed(own)...)
		for i := range own {
			own[i] = '#'
		}
	}
	out = append(out, s.End(cause)...)
	return string(out), s
}

// eventsOf makes a stream of events.
func eventsOf(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

// failed is the error event with a message.
func failed(code, message string) string {
	return eventsOf(`{"error":{"message":"` + message + `","type":"server_error","param":null,"code":"` + code + `"}}`)
}

const (
	broken = "The upstream stream ended unexpectedly: the model server stopped before the answer was complete. Try again."

	hi      = `{"id":"c1","choices":[{"index":0,"delta":{"content":"hi"}}],"created":7,"model":"up"}`
	hiPub   = `{"id":"c1","choices":[{"index":0,"delta":{"content":"hi"}}],"created":7,"model":"pub"}`
	stop    = `{"model":"up","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	stopPub = `{"model":"pub","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	costs   = `{"choices":[],"model":"up","usage":{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,` +
		`"prompt_tokens_details":{"cached_tokens":75},"completion_tokens_details":{"reasoning_tokens":3}}}`
	done = "[DONE]"
)

var streamCases = []struct {
	name, in, want string
	o              ChatStreamOptions
	failed         bool
}{
	{name: "plain", in: eventsOf(hi, stop, done), want: eventsOf(hiPub, stopPub, done)},
	{name: "CRLF and no space", in: "data:" + hi + "\r\n\r\ndata:" + stop + "\r\n\r\ndata:[DONE]\r\n\r\n",
		want: eventsOf(hiPub, stopPub, done)},
	{
		name: "comments, event, id and retry lines are dropped",
		in:   ": ping\n\nid: 1\nretry: 7\nevent: message\ndata: " + hi + "\n\n:\n\n" + eventsOf(stop, done),
		want: eventsOf(hiPub, stopPub, done),
	},
	{name: "several data lines become one",
		in:   "data: {\"model\":\ndata: \"up\",\ndata:  \"choices\":[{\"finish_reason\":\"stop\"}]}\n\n",
		want: eventsOf(`{"model": "pub",  "choices":[{"finish_reason":"stop"}]}`, done)},
	{name: "missing [DONE]", in: eventsOf(hi, stop), want: eventsOf(hiPub, stopPub, done)},
	{name: "last event without a blank line", in: eventsOf(hi) + "data: " + stop, want: eventsOf(hiPub, stopPub, done)},
	{name: "nothing behind [DONE]", in: eventsOf(hi, stop, done, hi), want: eventsOf(hiPub, stopPub, done)},
	{
		name: "numbers, order, unknown keys and escapes survive",
		in: eventsOf(`{ "x":1e3,"timings":{"a":0.10,"b":12345678901234567890},"model" : "up","x":[ ],`+
			`"choices":[{"delta":{"reasoning_content":"\u00e9\/"},"finish_reason":"stop"}] }`, done),
		want: eventsOf(`{ "x":1e3,"timings":{"a":0.10,"b":12345678901234567890},"model" : "pub","x":[ ],`+
			`"choices":[{"delta":{"reasoning_content":"\u00e9\/"},"finish_reason":"stop"}] }`, done),
	},
	{
		name: "an id alone behind the end is no call",
		in: eventsOf(hi, stop, `{"model":"up","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"x"}]}}]}`,
			done),
		want: eventsOf(hiPub, stopPub, `{"model":"pub","choices":[{"index":0,"delta":{"tool_calls":[]}}]}`, done),
	},
	{
		name: "what has no name behind the end is no call, what has one is",
		in: eventsOf(hi, stop, `{"model":"up","choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{\"a\":1}"}},`+
			`{"function":{"name":"f"}}],"function_call":{"arguments":"x"}}}]}`, done),
		want: eventsOf(hiPub, stopPub,
			`{"model":"pub","choices":[{"delta":{"tool_calls":[{"function":{"name":"f"}}],"function_call":null}}]}`, done),
	},
	{
		name: "arguments that come behind the end of a call",
		in: eventsOf(`{"model":"up","choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"f",`+
			`"arguments":"{"}}]},"finish_reason":"tool_calls"}]}`,
			`{"model":"up","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}},{"index":1,"id":"y"}]}}]}`, done),
		want: eventsOf(`{"model":"pub","choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"f",`+
			`"arguments":"{"}}]},"finish_reason":"tool_calls"}]}`,
			`{"model":"pub","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}`, done),
	},
	{name: "text that looks like a stream",
		in:   eventsOf(`{"choices":[{"delta":{"content":"data: [DONE]\n\nevent: error\n\n"}}]}`, stop),
		want: eventsOf(`{"choices":[{"delta":{"content":"data: [DONE]\n\nevent: error\n\n"}}]}`, stopPub, done)},
	{name: "text that is a lone BOM", in: eventsOf(`{"choices":[{"delta":{"content":"`+"\ufeff"+`"}}]}`, stop),
		want: eventsOf(`{"choices":[{"delta":{"content":"`+"\ufeff"+`"}}]}`, stopPub, done)},

	// error:null, which the Go SDK takes for a failure
	{name: "error null at the start", in: eventsOf(`{"error":null,"choices":[],"a":1}`, stop),
		want: eventsOf(`{"choices":[],"a":1}`, stopPub, done)},
	{name: "error null in the middle", in: eventsOf(`{"choices":[],"error" : null , "a":1}`, stop),
		want: eventsOf(`{"choices":[], "a":1}`, stopPub, done)},
	{name: "error null at the end", in: eventsOf(`{"choices":[], "error":null }`, stop),
		want: eventsOf(`{"choices":[] }`, stopPub, done)},
	{name: "error null alone", in: eventsOf(`{ "error":null }`, stop), want: eventsOf(`{  }`, stopPub, done)},
	{name: "error null behind usage null at the end", in: eventsOf(`{"model":"up","usage":null,"error":null}`, stop),
		want: eventsOf(`{"model":"pub"}`, stopPub, done)},
	{name: "usage, error and usage", in: eventsOf(`{"usage":null,"error":null,"usage":null}`, stop),
		want: eventsOf(`{}`, stopPub, done)},
	{name: "error null inside of a delta is not ours",
		in:   eventsOf(`{"choices":[{"delta":{"error":null,"usage":null,"model":"up"}}]}`, stop),
		want: eventsOf(`{"choices":[{"delta":{"error":null,"usage":null,"model":"up"}}]}`, stopPub, done)},

	// usage
	{name: "usage chunk that nobody asked for", in: eventsOf(hi, stop, costs, done), want: eventsOf(hiPub, stopPub, done)},
	{name: "usage chunk without choices", in: eventsOf(hi, stop, `{"usage":{"prompt_tokens":1}}`, done),
		want: eventsOf(hiPub, stopPub, done)},
	{
		name: "usage chunk that the client asked for", o: ChatStreamOptions{IncludeUsage: true},
		in: eventsOf(hi, stop, costs, done), want: eventsOf(hiPub, stopPub, strings.Replace(costs, "up", "pub", 1), done),
	},
	{
		name: "usage on every chunk",
		in: eventsOf(`{"usage":null,"choices":[{"delta":{"content":"x"}}]}`,
			`{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`),
		want: eventsOf(`{"choices":[{"delta":{"content":"x"}}]}`, `{"choices":[{"finish_reason":"stop"}]}`, done),
	},
	{
		name: "usage on every chunk, asked for", o: ChatStreamOptions{IncludeUsage: true},
		in: eventsOf(`{"usage":null,"choices":[]}`, `{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`),
		want: eventsOf(`{"usage":null,"choices":[]}`,
			`{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`, done),
	},
	{name: "no choices and no usage passes", in: eventsOf(`{"choices":[],"prompt_filter_results":[]}`, stop),
		want: eventsOf(`{"choices":[],"prompt_filter_results":[]}`, stopPub, done)},

	// ends
	{name: "end without finish_reason", in: eventsOf(hi), want: eventsOf(hiPub) + failed("upstream_error", broken),
		failed: true},
	{name: "nothing at all", in: "", want: failed("upstream_error", broken), failed: true},
	{name: "comments only", in: ":\n\n: ping\n\n", want: failed("upstream_error", broken), failed: true},
	{name: "[DONE] alone", in: eventsOf(done), want: failed("upstream_error", broken), failed: true},
	{
		name: "Ollama's runner killed: an empty chunk and a clean end",
		in: eventsOf(hi, `{"model":"","choices":[{"index":0,"delta":{"role":"assistant","content":""},`+
			`"finish_reason":null}]}`),
		want: eventsOf(hiPub, `{"model":"pub","choices":[{"index":0,"delta":{"role":"assistant","content":""},`+
			`"finish_reason":null}]}`) + failed("upstream_error", broken), failed: true,
	},
	{
		name: "[DONE] without finish_reason behind text", in: eventsOf(hi, done),
		want: eventsOf(hiPub, `{"id":"c1","created":7,"object":"chat.completion.chunk","model":"pub",`+
			`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, done),
	},
	{
		name: "[DONE] behind an empty finish_reason",
		in:   eventsOf(`{"choices":[{"index":1,"delta":{"tool_calls":[{"index":0}]},"finish_reason":""}]}`, done),
		want: eventsOf(`{"choices":[{"index":1,"delta":{"tool_calls":[{"index":0}]},"finish_reason":""}]}`,
			`{"object":"chat.completion.chunk","model":"pub","choices":[{"index":1,"delta":{},"finish_reason":"tool_calls"}]}`,
			done),
	},
	{
		name: "[DONE] without finish_reason behind a tool call",
		in:   eventsOf(`{"choices":[{"delta":{"content":"x","tool_calls":[{"index":0}]}}]}`, done),
		want: eventsOf(`{"choices":[{"delta":{"content":"x","tool_calls":[{"index":0}]}}]}`) +
			failed("upstream_error", broken), failed: true,
	},
	{
		name:   "[DONE] without finish_reason behind thinking",
		in:     eventsOf(`{"choices":[{"delta":{"content":"","reasoning_content":"x"}}]}`, done),
		want:   eventsOf(`{"choices":[{"delta":{"content":"","reasoning_content":"x"}}]}`) + failed("upstream_error", broken),
		failed: true,
	},
	{
		name: "one of two choices without an end",
		in:   eventsOf(hi, `{"choices":[{"index":1,"delta":{"content":"x"}}]}`, stop),
		want: eventsOf(hiPub, `{"choices":[{"index":1,"delta":{"content":"x"}}]}`, stopPub) +
			failed("upstream_error", broken), failed: true,
	},
	{
		name: "two choices, index 1 first",
		in:   eventsOf(`{"choices":[{"index":1,"delta":{},"finish_reason":"length"},{"index":0,"delta":{}}]}`, stop, done),
		want: eventsOf(`{"choices":[{"index":1,"delta":{},"finish_reason":"length"},{"index":0,"delta":{}}]}`, stopPub, done),
	},
	{name: "n ignored by the upstream", o: ChatStreamOptions{Choices: 2}, in: eventsOf(hi, stop),
		want: eventsOf(hiPub, stopPub, done)},
	{name: "text completion", in: eventsOf(`{"model":"up","choices":[{"text":"a","index":0,"finish_reason":null}]}`,
		`{"choices":[{"text":"","finish_reason":"length"}]}`, done),
		want: eventsOf(`{"model":"pub","choices":[{"text":"a","index":0,"finish_reason":null}]}`,
			`{"choices":[{"text":"","finish_reason":"length"}]}`, done)},
	{name: "a usage chunk cut behind the finish", o: ChatStreamOptions{Choices: 1},
		in: eventsOf(hi, stop) + `data: {"choices":[],"usa`, want: eventsOf(hiPub, stopPub, done)},
	{name: "message instead of delta", in: eventsOf(`{"choices":[{"message":{"content":"a"}}]}`, done),
		want: eventsOf(`{"choices":[{"message":{"content":"a"}}]}`,
			`{"object":"chat.completion.chunk","model":"pub","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, done)},

	{name: "[DONE] behind a refusal", in: eventsOf(`{"choices":[{"delta":{"refusal":"no"}}]}`, done),
		want: eventsOf(`{"choices":[{"delta":{"refusal":"no"}}]}`,
			`{"object":"chat.completion.chunk","model":"pub","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, done)},
	{name: "[DONE] behind a legacy function call",
		in:     eventsOf(`{"choices":[{"delta":{"function_call":{"name":"f"}}}]}`, done),
		want:   eventsOf(`{"choices":[{"delta":{"function_call":{"name":"f"}}}]}`) + failed("upstream_error", broken),
		failed: true},
	{name: "odd types are the client's to judge", o: ChatStreamOptions{RepairToolIndex: compat.RepairOn},
		in: eventsOf(`{"choices":[1,{"delta":[],"finish_reason":0},{"delta":{"tool_calls":[]}},{"delta":{"tool_calls":[7,`+
			`{"index":-1,"id":3,"function":[]}]}}],"usage":{"prompt_tokens":"x","prompt_tokens_details":null}}`, stop),
		want: eventsOf(`{"choices":[1,{"delta":[],"finish_reason":0},{"delta":{"tool_calls":[]}},`+
			`{"delta":{"tool_calls":[7,{"index":0,"id":3,"function":[]}]}}]}`, stopPub, done)},

	// errors in the stream
	{name: "error object", in: eventsOf(hi, `{"error":{"code":500,"message":"bad tool","type":"server_error"}}`),
		want: eventsOf(hiPub) + failed("upstream_error", "The model server reported an error: bad tool"), failed: true},
	{name: "error object and [DONE]", in: eventsOf(hi, `{"error":{"message":"boom"}}`, done),
		want: eventsOf(hiPub) + failed("upstream_error", "The model server reported an error: boom"), failed: true},
	{name: "error text beside empty choices", in: eventsOf(`{"choices":[],"error":"Worker limit reached (33/32)"}`, done),
		want: failed("upstream_error", "The model server reported an error: Worker limit reached (33/32)"), failed: true},
	{name: "error with code 502 beside empty choices",
		in:   eventsOf(`{"choices":[],"error":{"message":"Worker limit reached","code":502}}`, done),
		want: failed("upstream_error", "The model server reported an error: Worker limit reached"), failed: true},
	{name: "error with code 503", in: eventsOf(`{"error":{"message":"busy","code":503}}`),
		want: failed("overloaded", "The model server reported an error: busy. Please try again in 5s."), failed: true},
	{name: "object error", in: eventsOf(`{"object":"error","message":"old vLLM","code":500}`),
		want: failed("upstream_error", "The model server reported an error: old vLLM"), failed: true},
	{name: "event error", in: "event: error\ndata: {\"message\":\"x\"}\n\n",
		want: failed("upstream_error", "The model server reported an error: x"), failed: true},
	{name: "event error with text", in: eventsOf(hi) + "event: error\ndata: it broke\n\n",
		want: eventsOf(hiPub) + failed("upstream_error", "The model server reported an error: it broke"), failed: true},
	{name: "event error without data is none", in: "event: error\n\n" + eventsOf(hi, stop),
		want: eventsOf(hiPub, stopPub, done)},
	{name: "event error with empty data", in: "event: error\ndata\n\n",
		want: failed("upstream_error", "The model server reported an error: no reason given"), failed: true},
	{name: "empty data", in: "data\n\n" + eventsOf(hi, stop), want: eventsOf(hiPub, stopPub, done)},
	{name: "no JSON", in: eventsOf(hi, "Internal error: out of memory"),
		want: eventsOf(hiPub) + failed("upstream_error",
			"The model server did not send a valid JSON object: Internal error: out of memory"), failed: true},
	{name: "JSON but no object", in: eventsOf(`["x"]`),
		want: failed("upstream_error", `The model server did not send a valid JSON object: [\"x\"]`), failed: true},
	{name: "JSON cut short", in: eventsOf(`{"choices":[{"finish_reason":"stop"}]`),
		want: failed("upstream_error",
			`The model server did not send a valid JSON object: {\"choices\":[{\"finish_reason\":\"stop\"}]`), failed: true},
	{name: "finish_reason error",
		in: eventsOf(hi, `{"choices":[{"delta":{"content":"x"},"finish_reason":"error"}]}`, done),
		want: eventsOf(hiPub) + failed("upstream_error",
			"The model server aborted the answer (finish_reason error). Try again."), failed: true},
	{
		name: "context overflow in the stream",
		in:   eventsOf(`{"error":{"message":"request (50 tokens) exceeds the available context size (40 tokens)","code":400}}`),
		want: eventsOf(`{"error":{"message":"request (50 tokens) exceeds the available context size (40 tokens)",` +
			`"type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`), failed: true,
	},

	// tool calls
	{
		name: "Ollama's index 0 for all, two calls",
		in: eventsOf(`{"system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"tool_calls":[{"id":"a1","index":0,`+
			`"type":"function","function":{"name":"Read","arguments":"{\"path\":\"a\"}"}}]}}]}`,
			`{"system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"tool_calls":[{"id":"a2","index":0,`+
				`"type":"function","function":{"name":"Read","arguments":"{\"path\":\"b\"}"}}]},"finish_reason":"tool_calls"}]}`,
			done),
		want: eventsOf(`{"system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"tool_calls":[{"id":"a1",`+
			`"index":0,"type":"function","function":{"name":"Read","arguments":"{\"path\":\"a\"}"}}]}}]}`,
			`{"system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"tool_calls":[{"id":"a2","index":1,`+
				`"type":"function","function":{"name":"Read","arguments":"{\"path\":\"b\"}"}}]},"finish_reason":"tool_calls"}]}`,
			done),
	},
	{
		name: "fingerprint behind the choices, several calls in a chunk, index missing",
		in: eventsOf(`{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},` +
			`{"index":null,"id":"b","function":{"name":"f","arguments":{}}},{}]},"finish_reason":"stop"}],"model":"up",` +
			`"system_fingerprint":"fp_ollama"}`),
		want: eventsOf(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},`+
			`{"index":1,"id":"b","function":{"name":"f","arguments":{}}},{"index":1}]},"finish_reason":"stop"}],`+
			`"model":"pub","system_fingerprint":"fp_ollama"}`, done),
	},
	{
		name: "no repair for others",
		in: eventsOf(`{"choices":[{"delta":{"tool_calls":[{"id":"a","index":0,"function":{"name":"f"}},{"id":"b",` +
			`"index":0,"function":{"name":"f"}}]},"finish_reason":"stop"}]}`),
		want: eventsOf(`{"choices":[{"delta":{"tool_calls":[{"id":"a","index":0,"function":{"name":"f"}},{"id":"b",`+
			`"index":0,"function":{"name":"f"}}]},"finish_reason":"stop"}]}`, done),
	},
	{
		name: "repair when told to", o: ChatStreamOptions{RepairToolIndex: compat.RepairOn},
		in: eventsOf(`{"choices":[{"delta":{"tool_calls":[{"id":"a","index":0,"function":{"name":"f"}},{"id":"b",` +
			`"index":0,"function":{"name":"f"}}]},"finish_reason":"stop"}]}`),
		want: eventsOf(`{"choices":[{"delta":{"tool_calls":[{"id":"a","index":0,"function":{"name":"f"}},{"id":"b",`+
			`"index":1,"function":{"name":"f"}}]},"finish_reason":"stop"}]}`, done),
	},
	{
		name: "llama.cpp's fragments", o: ChatStreamOptions{RepairToolIndex: compat.RepairOn},
		in: eventsOf(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"x\":1}"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]},`+
				`"finish_reason":"tool_calls"}]}`, done),
		want: eventsOf(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"x\":1}"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]},`+
				`"finish_reason":"tool_calls"}]}`, done),
	},
}

func TestChatStream(t *testing.T) {
	for _, tt := range streamCases {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Model = "pub"
			in := []byte(tt.in)
			check := func(how, got string, s *ChatStream) {
				t.Helper()
				if got != tt.want {
					t.Errorf("%s\n got %s\nwant %s", how, got, tt.want)
				}
				if (s.Err() != nil) != tt.failed || !s.Done() {
					t.Errorf("%s: error %v, done %v", how, s.Err(), s.Done())
				}
			}
			got, s := runStream(tt.o, nil, in)
			check("whole", got, s)
			got, s = runStream(tt.o, nil, cut.Bytewise(in)...)
			check("byte by byte", got, s)
			for i := range in {
				got, s := runStream(tt.o, nil, in[:i], in[i:])
				check("cut", got, s)
			}
		})
	}
}

func TestChatStreamEndedByACause(t *testing.T) {
	reset := UpstreamReset("pub")
	o := ChatStreamOptions{Model: "pub", Choices: 1}
	tail := "data: " + string(reset.Body(Chat, "")) + "\n"
	for _, tt := range []struct {
		name, in, want string
		o              ChatStreamOptions
	}{
		{"before the first byte", "", tail, o},
		{"in the middle", eventsOf(hi), eventsOf(hiPub) + tail, o},
		{"in the middle of a field's name", eventsOf(hi) + "da", eventsOf(hiPub) + tail, o},
		{"in the middle of an event", eventsOf(hi) + eventsOf(hi)[:20], eventsOf(hiPub) + tail, o},
		{"before an event's empty line", eventsOf(hi) + eventsOf(hi)[:len(eventsOf(hi))-2], eventsOf(hiPub, hiPub) + tail, o},
		{"behind the finish", eventsOf(hi, stop), eventsOf(hiPub, stopPub, done), o},
		{"behind the finish of one of two choices", eventsOf(hi, stop), eventsOf(hiPub, stopPub) + tail,
			ChatStreamOptions{Model: "pub", Choices: 2}},
		{"behind a finish, choices unknown", eventsOf(hi, stop), eventsOf(hiPub, stopPub) + tail,
			ChatStreamOptions{Model: "pub"}},
		{"behind [DONE]", eventsOf(hi, stop, done), eventsOf(hiPub, stopPub, done), o},
	} {
		got, s := runStream(tt.o, reset, []byte(tt.in))
		if got != tt.want || !s.Done() || (s.Err() == reset) != strings.HasSuffix(tt.want, tail) {
			t.Errorf("%s: error %v\n got %s\nwant %s", tt.name, s.Err(), got, tt.want)
		}
		if more := string(s.Feed([]byte(eventsOf(hi)))) + string(s.End(nil)); more != "" {
			t.Errorf("%s: %q behind the end", tt.name, more)
		}
	}
}

func TestChatStreamTellsUsageAndProgress(t *testing.T) {
	s := NewChatStream(ChatStreamOptions{Model: "pub", Choices: 1})
	s.Feed([]byte(": ping\n\n: ping\n\ndata\n\n"))
	if _, ok := s.Usage(); ok || s.events != 0 || s.Finished() {
		t.Errorf("comments: %d events, finished %v", s.events, s.Finished())
	}
	s.Feed([]byte(eventsOf(hi, stop)))
	if s.events != 2 || !s.Finished() || s.Done() {
		t.Errorf("%d events, finished %v, done %v", s.events, s.Finished(), s.Done())
	}
	if out := s.Feed([]byte(eventsOf(costs))); len(out) != 0 {
		t.Errorf("usage went out: %s", out)
	}
	want := Usage{PromptTokens: 100, CompletionTokens: 7, CachedTokens: 75, ReasoningTokens: 3}
	if u, ok := s.Usage(); !ok || u != want {
		t.Errorf("usage %+v, %v", u, ok)
	}
	if out := string(s.Feed([]byte(eventsOf(done)))); out != eventsOf(done) || !s.Done() || s.Err() != nil {
		t.Errorf("end %q, done %v, error %v", out, s.Done(), s.Err())
	}
}

func TestChatStreamTakesLargeEvents(t *testing.T) {
	const size = 17 << 20
	text := strings.Repeat("x", size)
	in := []byte(eventsOf(`{"model":"up","choices":[{"delta":{"content":"`+text+`"}}]}`, stop, done))
	out, s := runStream(ChatStreamOptions{Model: "pub"}, nil, slices.Collect(slices.Chunk(in, 60<<10))...)
	if s.Err() != nil || len(out) != len(in)+2 || !strings.HasSuffix(out, eventsOf(stopPub, done)) {
		t.Errorf("%d of %d bytes, error %v", len(out), len(in), s.Err())
	}
	out, s = runStream(ChatStreamOptions{Model: "pub"}, nil,
		slices.Collect(slices.Chunk(slices.Concat([]byte("data: "), bytes.Repeat([]byte("x"), sse.MaxEvent)), 1<<20))...)
	if s.Err() == nil || !strings.Contains(out, "larger than 32 MiB") {
		t.Errorf("an event without bounds: %v, %.200s", s.Err(), out)
	}
}

func TestChatStreamLetsLargeBuffersGo(t *testing.T) {
	s := NewChatStream(ChatStreamOptions{Model: "pub"})
	s.Feed([]byte(eventsOf(`{"choices":[{"delta":{"content":"` + strings.Repeat("x", 1<<20) + `"}}]}`)))
	s.Feed([]byte(eventsOf(hi)))
	if cap(s.out) > sse.KeepBuffer {
		t.Errorf("a buffer of %d bytes is kept", cap(s.out))
	}
}

func TestChatStreamBoundsItsState(t *testing.T) {
	s := NewChatStream(ChatStreamOptions{Model: "pub", RepairToolIndex: compat.RepairOn})
	for i := range 5000 {
		n := string(jsonscan.AppendQuoted(nil, strings.Repeat("i", i%7)+string(rune('a'+i%26))))
		s.Feed([]byte(eventsOf(`{"choices":[{"index":` + string(integerText(i)) +
			`,"delta":{}},{"index":0,"delta":{"tool_calls":[{"index":` + string(integerText(i)) + `,"function":{"name":` + n +
			`}}]}}]}`)))
	}
	if len(s.choices) > maxChoices || len(s.tools.slots) > maxToolSlots {
		t.Errorf("%d choices, %d tool slots", len(s.choices), len(s.tools.slots))
	}
}

func integerText(i int) []byte { b, _ := json.Marshal(i); return b }

func TestChatStreamAllocatesNothing(t *testing.T) {
	s := NewChatStream(ChatStreamOptions{Model: "pub"})
	piece := []byte(eventsOf(hi, `{"model":"up","error":null,"usage":{"prompt_tokens":1},"choices":[{"index":0,`+
		`"delta":{"content":"a\n"}}]}`))
	half := len(piece) / 3
	run := func() {
		s.Feed(piece[:half])
		s.Feed(piece[half:])
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations for two events", n)
	}
}

func FuzzChatStream(f *testing.F) {
	for i, tt := range streamCases {
		f.Add([]byte(tt.in), uint64(i), tt.o.IncludeUsage, tt.o.RepairToolIndex != "")
	}
	for _, shape := range odd.Shapes {
		f.Add([]byte(eventsOf(shape, done)), uint64(1), true, true)
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, usage, repair bool) {
		o := ChatStreamOptions{Model: "pub", Choices: 1, IncludeUsage: usage, Info: &AnswerInfo{Wanted: true}}
		o.RepairToolIndex = map[bool]string{true: compat.RepairOn}[repair]
		whole, s := runStream(o, nil, in)
		pieces, _ := runStream(o, nil, cut.Anywhere(in, seed)...)
		if whole != pieces {
			t.Fatalf("whole %q\n  cut %q", whole, pieces)
		}
		checkClientStream(t, whole, s, usage)
	})
}

// checkClientStream checks what every client may rely on.
func checkClientStream(t *testing.T, out string, s *ChatStream, usage bool) {
	t.Helper()
	if !s.Done() {
		t.Fatal("the stream has no end")
	}
	events := strings.Split(strings.TrimSuffix(out, "\n\n"), "\n\n")
	for i, e := range events {
		data, ok := strings.CutPrefix(e, "data: ")
		if !ok || strings.Contains(data, "\n") {
			t.Fatalf("event %d: %q", i, e)
		}
		last := i == len(events)-1
		if data == done && last && s.Err() == nil {
			return
		}
		var chunk map[string]json.RawMessage
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("event %d: %v: %q", i, err, data)
		}
		if _, ok := chunk["error"]; ok != (last && s.Err() != nil) {
			t.Fatalf("event %d of %d, stream's error %v: %q", i, len(events), s.Err(), data)
		}
		if model, ok := chunk["model"]; ok && string(model) != `"pub"` {
			t.Fatalf("event %d names the model %s", i, model)
		}
		if _, ok := chunk["usage"]; ok && !usage {
			t.Fatalf("event %d has usage: %q", i, data)
		}
	}
	if s.Err() == nil {
		t.Fatalf("a good end without [DONE]: %q", out)
	}
}
