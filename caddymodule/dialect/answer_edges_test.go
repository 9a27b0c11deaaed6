package dialect

// edgeCases are forms of answers that servers rarely send.
var edgeCases = []answerCase{
	{
		"legacy function_call",
		deltaChunk(`"content":null,"function_call":{"name":"a","arguments":""}`) +
			deltaChunk(`"function_call":{"arguments":"{\"x\":1}"}`) + finishChunk("function_call") + upstreamDone,
		`tool:toolu_2 a {"x":1} | tool_use`, `function_call:call_2 a {"x":1} | completed`, nil,
	},
	{
		"message instead of delta, content in parts",
		rawEvent(`{"choices":[{"message":{"role":"assistant","content":[{"type":"text","text":"He"},{"type":"text",`+
			`"text":""},"llo"]},"finish_reason":null}]}`) + rawEvent(`{"choices":[{"delta":null,"finish_reason":"stop"}]}`) +
			upstreamDone,
		"text:Hello | end_turn", "message:Hello | completed", nil,
	},
	{
		"other choices are not read",
		rawEvent(`{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"length"}]}`) +
			rawEvent(`{"choices":[{"delta":{"content":"yes"},"index":0}]}`) + finishChunk("stop") + upstreamDone,
		"text:yes | end_turn", "message:yes | completed", nil,
	},
	{
		"the first finish_reason counts",
		contentChunk("Hi") + finishChunk("length") + finishChunk("stop") + upstreamDone,
		"text:Hi | max_tokens", "message:Hi (incomplete) | incomplete max_output_tokens", nil,
	},
	{
		"usage on every chunk, the last counts",
		rawEvent(`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`) +
			rawEvent(`{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,`+
				`"completion_tokens":2}}`) + rawEvent(`{"choices":[],"usage":null}`) + upstreamDone,
		"text:ab | end_turn", "message:ab | completed", nil,
	},
	{
		"done without a reason, but with text",
		contentChunk("Hi") + upstreamDone, "text:Hi | end_turn", "message:Hi | completed", nil,
	},
	{
		"done without a reason, but with a whole call",
		toolChunk(call(0, "c1", "a", `{"x":1}`)) + upstreamDone, `tool:c1 a {"x":1} | tool_use`,
		`function_call:c1 a {"x":1} | completed`, nil,
	},
	{
		"done behind an empty reason",
		toolChunk(call(0, "c1", "a", ``)) + finishChunk("") + upstreamDone, `tool:c1 a  | tool_use`,
		`function_call:c1 a {} | completed`, nil,
	},
	{
		"done in the middle of a call",
		contentChunk("Hi") + toolChunk(call(0, "c1", "a", `{"x":`)) + upstreamDone,
		`text:Hi tool:c1 a {"x": ` + brokenMessages, "message:Hi " + brokenResponses, nil,
	},
	{"done after thinking alone", reasonChunk("hm") + upstreamDone, "thinking:hm " + brokenMessages, brokenResponses, nil},
	{"done after nothing", upstreamDone, brokenMessages, brokenResponses, nil},
	{"end without a reason", contentChunk("Hi"), "text:Hi " + brokenMessages, brokenResponses, nil},
	{
		"end as Ollama dies",
		contentChunk("Hi") + rawEvent(`{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"",`+
			`"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`),
		"text:Hi " + brokenMessages, brokenResponses, nil,
	},
	{"nothing at all", "", brokenMessages, brokenResponses, nil},
	{
		"end behind the reason", contentChunk("Hi") + finishChunk("stop"), "text:Hi | end_turn",
		"message:Hi | completed", nil,
	},
	{
		"a broken event behind the reason", contentChunk("Hi") + finishChunk("stop") + `data: {"choi`, "text:Hi | end_turn",
		"message:Hi | completed", nil,
	},
	{
		"error behind the reason",
		contentChunk("Hi") + finishChunk("stop") + rawEvent(`{"error":{"message":"late","code":503}}`),
		"text:Hi !overloaded_error: The model server reported an error: late. Please try again in 5s.",
		"| failed !server_error: The model server reported an error: late. Please try again in 5s.", nil,
	},
	{
		"the reason is an error",
		contentChunk("Hi") + finishChunk("abort") + upstreamDone,
		"text:Hi !api_error: The model server aborted the answer…",
		"| failed !server_error: The model server aborted the answer…", nil,
	},
	{
		"error by the event's name",
		"event: error\ndata: {\"message\":\"rate limited\",\"code\":429}\n\n" + upstreamDone,
		"!rate_limit_error: The model server reported an error: rate limited. Please try again in 1s.",
		"| failed !rate_limit_exceeded: The model server reported an error: rate limited. Please try again in 1s.", nil,
	},
	{
		"what is no JSON is passed over",
		rawEvent("PROCESSING") + contentChunk("Hi") + rawEvent("{oops") + finishChunk("stop") + upstreamDone,
		"text:Hi | end_turn", "message:Hi | completed", nil,
	},
	{
		"nothing but what is no JSON",
		rawEvent("Model failed to load") + upstreamDone,
		"!api_error: The model server did not send a valid JSON object: Model failed to load",
		"| failed !server_error: The model server did not send a valid JSON object: Model failed to load", nil,
	},
	{
		"line ends, comments and fields",
		"\ufeff: hello\r\nid: 1\r\nretry: 5\r\ndata: {\"choices\":[{\"delta\":\r\ndata: " +
			"{\"content\":\"Hi\"}}]}\r\n\r\n:\n\ndata:{\"choices\":[{\"finish_reason\":\"eos\"}]}\r\rdata: [DONE]",
		"text:Hi | end_turn", "message:Hi | completed", nil,
	},
}
