package dialect

import "strings"

var streamCases = []struct {
	name, in, want string
	o              ChatStreamOptions
	failed         bool
}{
	{name: "plain", in: eventsOf(hi, stop, done), want: eventsOf(hiPub, stopPub, done)},
	{
		name: "CRLF and no space", in: "data:" + hi + "\r\n\r\ndata:" + stop + "\r\n\r\ndata:[DONE]\r\n\r\n",
		want: eventsOf(hiPub, stopPub, done),
	},
	{
		name: "comments, event, id and retry lines are dropped",
		in:   ": ping\n\nid: 1\nretry: 7\nevent: message\ndata: " + hi + "\n\n:\n\n" + eventsOf(stop, done),
		want: eventsOf(hiPub, stopPub, done),
	},
	{
		name: "several data lines become one",
		in:   "data: {\"model\":\ndata: \"up\",\ndata:  \"choices\":[{\"finish_reason\":\"stop\"}]}\n\n",
		want: eventsOf(`{"model": "pub",  "choices":[{"finish_reason":"stop"}]}`, done),
	},
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
	{name: "usage chunk that nobody asked for", in: eventsOf(hi, stop, costs, done), want: eventsOf(hiPub, stopPub, done)},
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
		name: "end without finish_reason", in: eventsOf(hi), want: eventsOf(hiPub) + failed("upstream_error", broken),
		failed: true,
	},
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
		name: "a usage chunk cut behind the finish", o: ChatStreamOptions{Choices: 1},
		in: eventsOf(hi, stop) + `data: {"choices":[],"usa`, want: eventsOf(hiPub, stopPub, done),
	},
	{
		name: "message instead of delta", in: eventsOf(`{"choices":[{"message":{"content":"a"}}]}`, done),
		want: eventsOf(`{"choices":[{"message":{"content":"a"}}]}`,
			`{"object":"chat.completion.chunk","model":"pub","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, done),
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
		name: "error object", in: eventsOf(hi, `{"error":{"code":500,"message":"bad tool","type":"server_error"}}`),
		want: eventsOf(hiPub) + failed("upstream_error", "The model server reported an error: bad tool"), failed: true,
	},
	{
		name: "error object and [DONE]", in: eventsOf(hi, `{"error":{"message":"boom"}}`, done),
		want: eventsOf(hiPub) + failed("upstream_error", "The model server reported an error: boom"), failed: true,
	},
	{
		name: "error text beside empty choices", in: eventsOf(`{"choices":[],"error":"Worker limit reached (33/32)"}`, done),
		want: failed("upstream_error", "The model server reported an error: Worker limit reached (33/32)"), failed: true,
	},
	{
		name: "error with code 502 beside empty choices",
		in:   eventsOf(`{"choices":[],"error":{"message":"Worker limit reached","code":502}}`, done),
		want: failed("upstream_error", "The model server reported an error: Worker limit reached"), failed: true,
	},
	{
		name: "error with code 503", in: eventsOf(`{"error":{"message":"busy","code":503}}`),
		want: failed("overloaded", "The model server reported an error: busy. Please try again in 5s."), failed: true,
	},
	{
		name: "object error", in: eventsOf(`{"object":"error","message":"old vLLM","code":500}`),
		want: failed("upstream_error", "The model server reported an error: old vLLM"), failed: true,
	},
	{
		name: "event error", in: "event: error\ndata: {\"message\":\"x\"}\n\n",
		want: failed("upstream_error", "The model server reported an error: x"), failed: true,
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
		name: "no JSON", in: eventsOf(hi, "Internal error: out of memory"),
		want: eventsOf(hiPub) + failed("upstream_error",
			"The model server did not send a valid JSON object: Internal error: out of memory"), failed: true,
	},
	{
		name: "JSON but no object", in: eventsOf(`["x"]`),
		want: failed("upstream_error", `The model server did not send a valid JSON object: [\"x\"]`), failed: true,
	},
	{
		name: "JSON cut short", in: eventsOf(`{"choices":[{"finish_reason":"stop"}]`),
		want: failed("upstream_error",
			`The model server did not send a valid JSON object: {\"choices\":[{\"finish_reason\":\"stop\"}]`), failed: true,
	},
	{
		name: "finish_reason error",
		in:   eventsOf(hi, `{"choices":[{"delta":{"content":"x"},"finish_reason":"error"}]}`, done),
		want: eventsOf(hiPub) + failed("upstream_error",
			"The model server aborted the answer (finish_reason error). Try again."), failed: true,
	},
	{
		name: "context overflow in the stream",
		in: eventsOf(`{"error":{"message":"request (50 tokens) exceeds the available context size (40 tokens)",` +
			`"code":400}}`),
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
