package dialect

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// wholeBody is a whole answer of the upstream with one choice.
func wholeBody(message, finish, extra string) string {
	return `{"id":"u1","object":"chat.completion","created":1,"model":"up","system_fingerprint":"b1",` +
		`"timings":{"cache_n":1},"choices":[{"index":0,"message":{"role":"assistant",` +
		message + `},"finish_reason":` + finish + extra +
		`}],"usage":{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":75},` +
		`"completion_tokens_details":{"reasoning_tokens":3}}}`
}

// answerDigests encodes a whole answer in both dialects.
func answerDigests(t *testing.T, body string, change func(*reply)) (messages, responses string) {
	t.Helper()
	var digests [2]string
	for i, d := range []Dialect{Messages, Responses} {
		r := testCall()
		r.dialect = d
		if change != nil {
			change(r)
		}
		out, _, err := encodeWhole([]byte(body), r)
		switch {
		case err != nil:
			digests[i] = "!" + err.Message
		case d == Messages:
			digests[i] = wholeMessageDigest(t, out)
		default:
			var response any
			if err := json.Unmarshal(out, &response); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			if err := checkResponse(response); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			digests[i] = responseDigest(response)
		}
	}
	return digests[0], digests[1]
}

func TestWholeAnswers(t *testing.T) {
	tool := func(id, name, args string) string {
		return `{"id":` + quoted(id) + `,"type":"function","function":{"name":` + quoted(name) + `,"arguments":` + args + `}}`
	}
	for _, c := range []struct {
		name, body, messages, responses string
		change                          func(*reply)
	}{
		{"text", wholeBody(`"content":"Hi"`, `"stop"`, ""), "text:Hi | end_turn", "message:Hi | completed", nil},
		{
			"error with a good status", `{"error":{"message":"Worker limit reached","code":502}}`,
			"!The model server reported an error: Worker limit reached",
			"!The model server reported an error: Worker limit reached", nil,
		},
		{
			"custom tool and namespace",
			wholeBody(`"content":null,"tool_calls":[`+tool("c1", "apply_patch", `"{\"patch\":\"*** Begin\"}"`)+`,`+
				tool("c2", "mcp__docs__search", `"{}"`)+`]`, `"tool_calls"`, ""),
			`tool:c1 apply_patch {"patch":"*** Begin"} tool:c2 search {} | tool_use`,
			`custom_tool_call:c1 apply_patch *** Begin function_call:c2 mcp__docs__/search {} | completed`, withTools,
		},
		{
			"arguments of all kinds", wholeBody(`"content":"","tool_calls":[`+strings.Join([]string{
				tool("c1", "a", `""`), tool("c2", "b", `" null "`), tool("c3", "c", `{"x": 1}`),
				tool("c4", "d", `"\"{\\\"x\\\":1}\""`),
				tool("c5", "e", `"[1]"`), tool("c6", "f", `"5"`), tool("c7", "g", `"{\"x\":"`), tool("c8", "h", `null`),
			}, ",")+`]`, `"tool_calls"`, ""),
			`tool:c1 a {} tool:c2 b {} tool:c3 c {"x":1} tool:c4 d {"x":1} tool:c5 e {"raw_arguments":"[1]"} tool:c6 f ` +
				`{"raw_arguments":"5"} tool:c7 g {"raw_arguments":"{\"x\":"} tool:c8 h {} | tool_use`,
			`function_call:c1 a {} function_call:c2 b {} function_call:c3 c {"x": 1} function_call:c4 d {"x":1} ` +
				`function_call:c5 e {"raw_arguments":"[1]"} function_call:c6 f {"raw_arguments":"5"} function_call:c7 g ` +
				`{"raw_arguments":"{\"x\":"} function_call:c8 h {} | completed`, nil,
		},
		{
			"limit within a call", wholeBody(`"content":"Hel","tool_calls":[`+tool("c1", "a", `"{"`)+`]`, `"length"`, ""),
			"text:Hel | max_tokens", "message:Hel function_call:c1 a { (incomplete) | incomplete max_output_tokens", nil,
		},
		{
			"limit behind a call", wholeBody(`"content":null,"tool_calls":[`+tool("c1", "a", `"{}"`)+`]`, `"length"`, ""),
			"tool:c1 a {} | max_tokens", "function_call:c1 a {} (incomplete) | incomplete max_output_tokens", nil,
		},
		{
			"refusal", wholeBody(`"content":null,"refusal":"No."`, `"stop"`, ""), "text:No. | refusal",
			"refusal:No. | completed", nil,
		},
		{
			"two calls with one id", wholeBody(`"content":null,"tool_calls":[`+tool("c", "a", `"{}"`)+`,`+
				tool("c", "a", `"{}"`)+`]`, `"tool_calls"`, ""),
			"tool:c a {} tool:c a {} | tool_use", "function_call:c a {} function_call:c a {} | completed", nil,
		},
		{
			"content in parts", wholeBody(`"content":[{"type":"text","text":"He"},{"type":"text","text":"llo"}]`, `"stop"`, ""),
			"text:Hello | end_turn", "message:Hello | completed", nil,
		},
		{"no reason", wholeBody(`"content":"Hi"`, `null`, ""), "text:Hi | end_turn", "message:Hi | completed", nil},
		{
			"no reason and thinking alone", wholeBody(`"content":"","reasoning":"hm"`, `null`, ""), "thinking:hm | end_turn",
			"reasoning:hm | completed", nil,
		},
		{"legacy function_call", wholeBody(`"content":null,"function_call":{"name":"a","arguments":"{\"x\":1}"}`,
			`"function_call"`, ""), `tool:toolu_2 a {"x":1} | tool_use`, `function_call:call_2 a {"x":1} | completed`, nil},
		{
			"no choices", `{"choices":[],"usage":{"prompt_tokens":1}}`,
			"!The model server's answer contains no choices. Try again.",
			"!The model server's answer contains no choices. Try again.", nil,
		},
		{
			"the reason is an error", wholeBody(`"content":"Hi"`, `"error"`, ""),
			"!The model server aborted the answer (finish_reason error). Try again.",
			"!The model server aborted the answer (finish_reason error). Try again.", nil,
		},
		{
			"HTML", "<html><body>Bad gateway</body></html>", "!The model server did not send a valid JSON object: Bad gateway",
			"!The model server did not send a valid JSON object: Bad gateway", nil,
		},
		{"empty", "", "!The model server's answer is empty.", "!The model server's answer is empty.", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			messages, responses := answerDigests(t, c.body, c.change)
			if messages != c.messages {
				t.Errorf("messages\n got %s\nwant %s", messages, c.messages)
			}
			if responses != c.responses {
				t.Errorf("responses\n got %s\nwant %s", responses, c.responses)
			}
		})
	}
}

// TestWholeBodies compares whole bodies byte for byte, including usage.
func TestWholeBodies(t *testing.T) {
	body := []byte(wholeBody(`"content":"Hi \"é\"\n","reasoning_content":"hm","tool_calls":[{"id":"c1",`+
		`"function":{"name":"a","arguments":"{\"x\": 1}"}}]`, `"tool_calls"`, ""))
	message, usage, err := encodeWhole(body, testCall(func(r *reply) { r.dialect = Messages }))
	if err != nil || usage != (Usage{PromptTokens: 100, CompletionTokens: 7, CachedTokens: 75, ReasoningTokens: 3}) {
		t.Fatalf("%v %+v", err, usage)
	}
	golden(t, "whole_message", string(message))
	response, _, err := encodeWhole(body, testCall(func(r *reply) {
		r.encrypted, r.dialect = true, Responses
		r.echo = map[string][]byte{
			"instructions": []byte(`"Be brief."`), "temperature": []byte("0.5"),
			"store": []byte("false"), "metadata": []byte(`{"a":"b"}`),
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "whole_response", string(response))
}

// TestUsage checks that the counts of messages exclude cached tokens, that those of responses include
// them, and that the usage is estimated if the upstream sends none.
func TestUsage(t *testing.T) {
	for _, c := range []struct{ name, chunk, messages, responses string }{
		{
			"more cached than asked", usageChunk(5, 9, 7),
			`"usage":{"input_tokens":0,"output_tokens":7,"cache_creation_input_tokens":0,"cache_read_input_tokens":9,`,
			`"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":9,`,
		},
		{
			"thinking", rawEvent(`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9,` +
				`"completion_tokens_details":{"reasoning_tokens":4}}}`),
			`"output_tokens_details":{"thinking_tokens":4}`, `"output_tokens_details":{"reasoning_tokens":4},"total_tokens":14`,
		},
		{
			"none", "",
			`"usage":{"input_tokens":42,"output_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,`,
			`"usage":{"input_tokens":42,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"output_tokens":1,`,
		},
	} {
		upstream := contentChunk("Hello") + finishChunk("stop") + c.chunk + upstreamDone
		for d, want := range map[Dialect]string{Messages: c.messages, Responses: c.responses} {
			s := newTestStream(d, testCall())
			if out := translate(s, upstream, nil); !strings.Contains(out, want) {
				t.Errorf("%s, %s: no %s in\n%s", c.name, d, want, out)
			}
			if _, ok := s.Usage(); ok != (c.chunk != "") {
				t.Errorf("%s, %s: reported usage: %v", c.name, d, ok)
			}
		}
	}
}

// TestReplay checks that a complete answer that is replayed as a stream has the same content as the
// whole answer.
func TestReplay(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 4))
		a := &randomAnswer{Rand: random}
		var calls []string
		for range random.IntN(3) {
			calls = append(calls, call(a.calls, a.pick([]string{"", "c" + strconv.Itoa(a.calls)}), "read",
				a.pick(randomArgs[:6])))
			a.calls++
		}
		body := wholeBody(`"content":`+quoted(a.pick(randomTexts))+`,"reasoning":`+quoted(a.pick(randomTexts))+
			`,"tool_calls":[`+strings.Join(calls, ",")+`]`, quoted(a.pick([]string{"stop", "length", "tool_calls"})), "")
		stream, err := ReplayAsStream([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		messages, responses := answerDigests(t, body, nil)
		streamed := translate(newTestStream(Messages, testCall()), string(stream), nil)
		if err := checkStream(Messages, streamed); err != nil {
			t.Fatal(err)
		}
		if want := messages[strings.LastIndex(messages, "|"):]; !strings.HasSuffix(messagesDigest(t, streamed), want) {
			t.Fatalf("seed %d: %s\nnot %s", seed, messagesDigest(t, streamed), messages)
		}
		got := responsesDigest(t, translate(newTestStream(Responses, testCall()), string(stream), nil))
		if strings.Count(got, "_call:") != strings.Count(responses, "_call:") ||
			got[strings.LastIndex(got, "|"):] != responses[strings.LastIndex(responses, "|"):] {
			t.Fatalf("seed %d: %s\nnot %s", seed, got, responses)
		}
	}
}

// The usage of an answer without one is estimated, and marked as an estimate.
func TestUsageIsEstimated(t *testing.T) {
	const text = `"content":"twelve bytes","reasoning_content":"four","tool_calls":[{"index":0,"id":"a",` +
		`"type":"function","function":{"name":"f","arguments":"{}"}}]`
	for d, path := range map[Dialect]OperationKind{
		Chat: ChatCompletions, Messages: CreateMessage,
		Responses: CreateResponse,
	} {
		body := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"u"}]}`
		if d == Responses {
			body = `{"model":"m","input":"u"}`
		}
		call := mustDecode(t, Operation{Kind: path, Dialect: d}, body, testEnv())
		_, u, fault := call.Answer([]byte(`{"id":"1","model":"up","choices":[{"index":0,"message":{"role":"assistant",` +
			text + `},"finish_reason":"stop"}]}`))
		if fault != nil || !u.Estimated || u.CompletionTokens < 4 || u.CompletionTokens > 40 {
			t.Errorf("%s: a whole answer cost %+v, %v", d, u, fault)
		}
		s := call.NewStream()
		s.Feed([]byte("data: {\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{" + text + "}}]}\n\n"))
		if u, ok := s.Usage(); ok || !u.Estimated || u.CompletionTokens < 3 || u.CompletionTokens > 40 {
			t.Errorf("%s: a stream that is not complete cost %+v, %v", d, u, ok)
		}
		s.Feed([]byte("data: {\"id\":\"1\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":7}}\n\n"))
		if u, ok := s.Usage(); !ok || u.Estimated || u.CompletionTokens != 7 {
			t.Errorf("%s: a stream with usage cost %+v, %v", d, u, ok)
		}
	}
}
