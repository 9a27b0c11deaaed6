package dialect

import "strings"

var streamCases = []struct {
	name, in, want string
	o              ChatStreamOptions
	failed         bool
}{
	{name: "plain", in: eventsOf(hi, stop, done), want: eventsOf(hiPub, stopPub, done)},
	{name: "nothing behind [DONE]", in: eventsOf(hi, stop, done, hi), want: eventsOf(hiPub, stopPub, done)},
	{
		name: "numbers, order, unknown keys and escapes survive",
		in: eventsOf(`{ "x":1e3,"timings":{"a":0.10,"b":12345678901234567890},"model" : "up","x":[ ],`+
			`"choices":[{"delta":{"reasoning_content":"\u00e9\/"},"finish_reason":"stop"}] }`, done),
		want: eventsOf(`{ "x":1e3,"timings":{"a":0.10,"b":12345678901234567890},"model" : "pub","x":[ ],`+
			`"choices":[{"delta":{"reasoning_content":"\u00e9\/"},"finish_reason":"stop"}] }`, done),
	},
	{
		name: "arguments that come behind the end of a call",
		in: eventsOf(`{"model":"up","choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"f",`+
			`"arguments":"{"}}]},"finish_reason":"tool_calls"}]}`,
			`{"model":"up","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}`, done),
		want: eventsOf(`{"model":"pub","choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"f",`+
			`"arguments":"{"}}]},"finish_reason":"tool_calls"}]}`,
			`{"model":"pub","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}`, done),
	},
	{
		name: "text that looks like a stream",
		in:   eventsOf(`{"choices":[{"delta":{"content":"data: [DONE]\n\nevent: error\n\n"}}]}`, stop),
		want: eventsOf(`{"choices":[{"delta":{"content":"data: [DONE]\n\nevent: error\n\n"}}]}`, stopPub, done),
	},
	{
		name: "text that is a lone BOM", in: eventsOf(`{"choices":[{"delta":{"content":"`+"\ufeff"+`"}}]}`, stop),
		want: eventsOf(`{"choices":[{"delta":{"content":"`+"\ufeff"+`"}}]}`, stopPub, done),
	},

	// error:null, which the Go SDK treats as a failure
	{
		name: "error null at the start", in: eventsOf(`{"error":null,"choices":[],"a":1}`, stop),
		want: eventsOf(`{"choices":[],"a":1}`, stopPub, done),
	},
	{
		name: "error null in the middle", in: eventsOf(`{"choices":[],"error" : null , "a":1}`, stop),
		want: eventsOf(`{"choices":[], "a":1}`, stopPub, done),
	},
	{
		name: "error null at the end", in: eventsOf(`{"choices":[], "error":null }`, stop),
		want: eventsOf(`{"choices":[] }`, stopPub, done),
	},
	{name: "error null alone", in: eventsOf(`{ "error":null }`, stop), want: eventsOf(`{  }`, stopPub, done)},
	{
		name: "error null behind usage null at the end", in: eventsOf(`{"model":"up","usage":null,"error":null}`, stop),
		want: eventsOf(`{"model":"pub"}`, stopPub, done),
	},
	{
		name: "usage, error and usage", in: eventsOf(`{"usage":null,"error":null,"usage":null}`, stop),
		want: eventsOf(`{}`, stopPub, done),
	},
	{
		name: "error null inside of a delta is not ours",
		in:   eventsOf(`{"choices":[{"delta":{"error":null,"usage":null,"model":"up"}}]}`, stop),
		want: eventsOf(`{"choices":[{"delta":{"error":null,"usage":null,"model":"up"}}]}`, stopPub, done),
	},

	// usage
	{
		name: "usage chunk without choices", in: eventsOf(hi, stop, `{"usage":{"prompt_tokens":1}}`, done),
		want: eventsOf(hiPub, stopPub, done),
	},
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
	{
		name: "no choices and no usage passes", in: eventsOf(`{"choices":[],"prompt_filter_results":[]}`, stop),
		want: eventsOf(`{"choices":[],"prompt_filter_results":[]}`, stopPub, done),
	},

	// ends
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
	{
		name: "n ignored by the upstream", o: ChatStreamOptions{Choices: 2}, in: eventsOf(hi, stop),
		want: eventsOf(hiPub, stopPub, done),
	},
	{
		name: "text completion", in: eventsOf(`{"model":"up","choices":[{"text":"a","index":0,"finish_reason":null}]}`,
			`{"choices":[{"text":"","finish_reason":"length"}]}`, done),
		want: eventsOf(`{"model":"pub","choices":[{"text":"a","index":0,"finish_reason":null}]}`,
			`{"choices":[{"text":"","finish_reason":"length"}]}`, done),
	},

	{
		name: "[DONE] behind a refusal", in: eventsOf(`{"choices":[{"delta":{"refusal":"no"}}]}`, done),
		want: eventsOf(`{"choices":[{"delta":{"refusal":"no"}}]}`,
			`{"object":"chat.completion.chunk","model":"pub","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, done),
	},
	{
		name:   "[DONE] behind a legacy function call",
		in:     eventsOf(`{"choices":[{"delta":{"function_call":{"name":"f"}}}]}`, done),
		want:   eventsOf(`{"choices":[{"delta":{"function_call":{"name":"f"}}}]}`) + failed("upstream_error", broken),
		failed: true,
	},
	{
		name: "odd types are the client's to judge",
		in: eventsOf(`{"system_fingerprint":"fp_ollama","choices":[1,{"delta":[],"finish_reason":0},`+
			`{"delta":{"tool_calls":[]}},{"delta":{"tool_calls":[7,`+
			`{"index":-1,"id":3,"function":[]}]}}],"usage":{"prompt_tokens":"x","prompt_tokens_details":null}}`, stop),
		want: eventsOf(`{"system_fingerprint":"fp_ollama","choices":[1,{"delta":[],"finish_reason":0},`+
			`{"delta":{"tool_calls":[]}},`+
			`{"delta":{"tool_calls":[7,{"index":0,"id":3,"function":[]}]}}]}`, stopPub, done),
	},

	// errors in the stream
	{
		name: "object error", in: eventsOf(`{"object":"error","message":"old vLLM","code":500}`),
		want: failed("upstream_error", "The model server reported an error: old vLLM"), failed: true,
	},
	{
		name: "event error with text", in: eventsOf(hi) + "event: error\ndata: it broke\n\n",
		want: eventsOf(hiPub) + failed("upstream_error", "The model server reported an error: it broke"), failed: true,
	},
	{
		name: "event error without data is none", in: "event: error\n\n" + eventsOf(hi, stop),
		want: eventsOf(hiPub, stopPub, done),
	},
	{
		name: "event error with empty data", in: "event: error\ndata\n\n",
		want: failed("upstream_error", "The model server reported an error: no reason given"), failed: true,
	},
	{name: "empty data", in: "data\n\n" + eventsOf(hi, stop), want: eventsOf(hiPub, stopPub, done)},
	{
		name: "JSON but no object", in: eventsOf(`["x"]`),
		want: failed("upstream_error", `The model server did not send a valid JSON object: [\"x\"]`), failed: true,
	},
	{
		name: "JSON cut short", in: eventsOf(`{"choices":[{"finish_reason":"stop"}]`),
		want: failed("upstream_error",
			`The model server did not send a valid JSON object: {\"choices\":[{\"finish_reason\":\"stop\"}]`), failed: true,
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
		name: "fragments of Ollama",
		in: eventsOf(`{"system_fingerprint":"fp_ollama",`+
			`"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"x\":1}"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]},`+
				`"finish_reason":"tool_calls"}]}`, done),
		want: eventsOf(`{"system_fingerprint":"fp_ollama",`+
			`"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f",`+
			`"arguments":"{"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"x\":1}"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]},`+
				`"finish_reason":"tool_calls"}]}`, done),
	},
}
