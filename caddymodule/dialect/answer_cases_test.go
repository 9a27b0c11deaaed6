package dialect

import "slices"

// answerCase is an upstream's stream, with the digest of what a client of each dialect
// reads. A "…" at the end of a digest stands for the rest of a message.
type answerCase struct {
	name      string
	upstream  string
	messages  string
	responses string
	change    func(*reply) // of the request
}

const (
	brokenMessages  = "!api_error: The upstream stream ended unexpectedly…"
	brokenResponses = "| failed !server_error: The upstream stream ended unexpectedly…"
	badArguments    = "The model produced invalid tool arguments…"
)

// withTools is a request with tools that have other names upstream.
func withTools(r *reply) {
	r.names = map[string]ToolName{
		"apply_patch":       {Kind: ToolCustom, Name: "apply_patch"},
		"mcp__docs__search": {Name: "search", Namespace: "mcp__docs__"},
		"functions__exec":   {Kind: ToolCustom, Name: "exec", Namespace: "functions"},
		"local_shell":       {Kind: ToolLocalShell, Name: "local_shell"},
		"shell":             {Kind: ToolShell, Name: "shell"},
		"patch":             {Kind: ToolApplyPatch, Name: "apply_patch"},
	}
}

// answerCases are the cases of the design's collection of other gateways'
// bugs that a stream shows, by their numbers there, and the edges of the rules
// for streams.
var answerCases = slices.Concat(toolCases, edgeCases)

// toolCases are most of those cases, of tool calls above all.
var toolCases = []answerCase{
	{
		"B1 tool call after text",
		contentChunk("Let me check.") + toolChunk(call(0, "c1", "get_weather", "")) + toolChunk(more(0, `{"city":"X"}`)) +
			finishChunk("tool_calls") + usageChunk(10, 0, 5) + upstreamDone,
		`text:Let me check. tool:c1 get_weather {"city":"X"} | tool_use`,
		`message:Let me check. function_call:c1 get_weather {"city":"X"} | completed`, nil,
	},
	{
		"B1 finish_reason stop",
		contentChunk("Let me check.") + toolChunk(call(0, "c1", "get_weather", "")) + toolChunk(more(0, `{"city":"X"}`)) +
			finishChunk("stop") + usageChunk(10, 0, 5) + upstreamDone,
		`text:Let me check. tool:c1 get_weather {"city":"X"} | tool_use`,
		`message:Let me check. function_call:c1 get_weather {"city":"X"} | completed`, nil,
	},
	{
		"B2 index 0 for all",
		toolChunk(call(0, "a1", "Read", `{"path":"a"}`)) + toolChunk(call(0, "a2", "Read", `{"path":"b"}`)) +
			finishChunk("tool_calls") + upstreamDone,
		`tool:a1 Read {"path":"a"} tool:a2 Read {"path":"b"} | tool_use`,
		`function_call:a1 Read {"path":"a"} function_call:a2 Read {"path":"b"} | completed`, nil,
	},
	{
		"B2 no index",
		toolChunk(`{"id":"a1","function":{"name":"Read","arguments":"{\"path\":\"a\"}"}}`) +
			toolChunk(`{"id":"a2","function":{"name":"Read","arguments":"{\"path\":\"b\"}"}}`) + finishChunk("tool_calls") +
			upstreamDone,
		`tool:a1 Read {"path":"a"} tool:a2 Read {"path":"b"} | tool_use`,
		`function_call:a1 Read {"path":"a"} function_call:a2 Read {"path":"b"} | completed`, nil,
	},
	{
		"B3 two calls and the end in one chunk",
		rawEvent(`{"choices":[{"index":0,"delta":{"tool_calls":[`+call(0, "c1", "a", `{"x":1}`)+`,`+
			call(1, "c2", "b", `{"y":2}`)+`]},"finish_reason":"tool_calls"}]}`) + upstreamDone,
		`tool:c1 a {"x":1} tool:c2 b {"y":2} | tool_use`,
		`function_call:c1 a {"x":1} function_call:c2 b {"y":2} | completed`, nil,
	},
	{
		"B3 interleaved calls",
		toolChunk(call(0, "c0", "a", "")) + toolChunk(call(1, "c1", "b", "")) + toolChunk(more(0, `{"a":`)) +
			toolChunk(more(1, `{"b":`)) + toolChunk(more(0, `1}`)) + toolChunk(more(1, `2}`)) + finishChunk("tool_calls") +
			upstreamDone,
		`tool:c0 a {"a":1} tool:c1 b {"b":2} | tool_use`,
		`function_call:c0 a {"a":1} function_call:c1 b {"b":2} | completed`, nil,
	},
	{
		"B4 error beside empty choices",
		rawEvent(`{"choices":[],"error":{"message":"Worker limit reached (33/32)","code":502}}`) + upstreamDone,
		"!api_error: The model server reported an error: Worker limit reached (33/32)",
		"| failed !server_error: The model server reported an error: Worker limit reached (33/32)", nil,
	},
	{
		"B4 error is a string",
		contentChunk("Hel") + rawEvent(`{"error":"text"}`) + upstreamDone,
		"text:Hel !api_error: The model server reported an error: text",
		"| failed !server_error: The model server reported an error: text", nil,
	},
	{
		"B5 thinking, then text",
		reasonChunk("hm") + reasonChunk("m") + contentChunk("Hi") + finishChunk("stop") + upstreamDone,
		"thinking:hmm text:Hi | end_turn",
		"reasoning:hmm message:Hi | completed", nil,
	},
	{
		"B6 id comes late",
		toolChunk(call(0, "", "bash", "")) + toolChunk(call(0, "real", "", `{"a":1}`)) + finishChunk("tool_calls") +
			upstreamDone,
		`tool:real bash {"a":1} | tool_use`, `function_call:real bash {"a":1} | completed`, nil,
	},
	{
		"B6 id never comes",
		toolChunk(call(0, "", "bash", "")) + toolChunk(more(0, `{"a":1}`)) + finishChunk("tool_calls") + upstreamDone,
		`tool:toolu_2 bash {"a":1} | tool_use`, `function_call:call_2 bash {"a":1} | completed`, nil,
	},
	{
		"B6 id that the dialect does not allow",
		toolChunk(call(0, "functions.bash:0", "bash", `{"a":1}`)) + finishChunk("tool_calls") + upstreamDone,
		`tool:call_QSL75HGONGX7BKTQEXX5SM4Q bash {"a":1} | tool_use`,
		`function_call:functions.bash:0 bash {"a":1} | completed`, nil,
	},
	{
		"B6 name null and repeated later",
		toolChunk(call(0, "c1", "bash", `{"a"`)) +
			toolChunk(`{"index":0,"id":null,"function":{"name":null,"arguments":":1"}}`) +
			toolChunk(`{"index":0,"id":"c1","function":{"name":"bash","arguments":"}"}}`) + finishChunk("tool_calls") +
			upstreamDone,
		`tool:c1 bash {"a":1} | tool_use`, `function_call:c1 bash {"a":1} | completed`, nil,
	},
	{
		"B10 reasoning under its other name",
		deltaChunk(`"reasoning":"hm"`) + contentChunk("Hi") + finishChunk("stop") + upstreamDone,
		"thinking:hm text:Hi | end_turn", "reasoning:hm message:Hi | completed", nil,
	},
	{
		"B10 reasoning under two names counts once",
		deltaChunk(`"content":null,"reasoning":"hm","reasoning_content":"hm"`) + contentChunk("Hi") + finishChunk("stop") +
			upstreamDone,
		"thinking:hm text:Hi | end_turn", "reasoning:hm message:Hi | completed", nil,
	},
	{
		"B14 custom tool",
		toolChunk(call(0, "c1", "apply_patch", "")) + toolChunk(more(0, `{"inp`)) + toolChunk(more(0, `ut":"*** Begin`)) +
			toolChunk(more(0, ` Patch\n+é"}`)) + finishChunk("tool_calls") + upstreamDone,
		"tool:c1 apply_patch {\"input\":\"*** Begin Patch\\n+é\"} | tool_use",
		"custom_tool_call:c1 apply_patch *** Begin Patch\n+é | completed", withTools,
	},
	{
		"B14 custom tool with raw input",
		toolChunk(call(0, "c1", "functions__exec", "*** Begin")) + toolChunk(more(0, " Patch")) + finishChunk("tool_calls") +
			upstreamDone,
		`tool:c1 exec {"raw_arguments":"*** Begin Patch"} | tool_use`,
		"custom_tool_call:c1 functions/exec *** Begin Patch | completed", withTools,
	},
	{
		"B15 namespace",
		toolChunk(call(0, "c1", "mcp__docs__search", `{"q":"x"}`)) + finishChunk("tool_calls") + upstreamDone,
		`tool:c1 search {"q":"x"} | tool_use`,
		`function_call:c1 mcp__docs__/search {"q":"x"} | completed`, withTools,
	},
	{
		"B21 usage with cached tokens",
		contentChunk("Hi") + finishChunk("stop") + usageChunk(100, 75, 7) + upstreamDone,
		"text:Hi | end_turn", "message:Hi | completed", nil,
	},
	{
		"B23 stop sequence of vLLM",
		contentChunk("a") + finishChunk("stop", `,"stop_reason":"END"`) + upstreamDone,
		"text:a | stop_sequence END", "message:a | completed", nil,
	},
	{
		"B23 stop sequence of SGLang",
		contentChunk("a") + finishChunk("stop", `,"matched_stop":"END"`) + upstreamDone,
		"text:a | stop_sequence END", "message:a | completed", nil,
	},
	{
		"B23 id of a token",
		contentChunk("a") + finishChunk("stop", `,"stop_reason":151645,"matched_stop":null`) + upstreamDone,
		"text:a | end_turn", "message:a | completed", nil,
	},
	{
		"B25 context overflow in a stream",
		rawEvent(`{"error":{"code":400,"message":"request (13392 tokens) exceeds the available context size (8192 tokens),` +
			` try increasing it","type":"exceed_context_size_error","n_prompt_tokens":13392,"n_ctx":8192}}`),
		"!invalid_request_error: prompt is too long: 13392 tokens > 8192 maximum",
		"| failed !context_length_exceeded: request (13392 tokens) exceeds the available context size (8192 tokens), try " +
			"increasing it", nil,
	},
	{
		"nothing but an end",
		deltaChunk(`"role":"assistant","content":null`) + finishChunk("stop") + upstreamDone,
		"| end_turn", "message: | completed", nil,
	},
	{
		"nothing but the limit",
		finishChunk("length") + upstreamDone,
		"| max_tokens", "message: (incomplete) | incomplete max_output_tokens", nil,
	},
	{
		"white space before a call",
		contentChunk("\n\n") + toolChunk(call(0, "c1", "a", "{}")) + finishChunk("tool_calls") + upstreamDone,
		"text:\n\n tool:c1 a {} | tool_use", "message:\n\n function_call:c1 a {} | completed", nil,
	},
	{
		"thinking, then a call",
		reasonChunk("hm") + toolChunk(call(0, "c1", "a", "{}")) + finishChunk("tool_calls") + upstreamDone,
		"thinking:hm tool:c1 a {} | tool_use", "reasoning:hm function_call:c1 a {} | completed", nil,
	},
	{
		"thinking between calls",
		reasonChunk("1") + toolChunk(call(0, "c1", "a", "{}")) + reasonChunk("2") + toolChunk(call(1, "c2", "b", "{}")) +
			finishChunk("tool_calls") + upstreamDone,
		"thinking:1 tool:c1 a {} thinking:2 tool:c2 b {} | tool_use",
		"reasoning:1 function_call:c1 a {} reasoning:2 function_call:c2 b {} | completed", nil,
	},
	{
		"text behind a call",
		toolChunk(call(0, "c1", "a", "{}")) + contentChunk("So.") + finishChunk("stop") + upstreamDone,
		"tool:c1 a {} text:So. | tool_use", "function_call:c1 a {} message:So. | completed", nil,
	},
	{
		"text in the middle of a call",
		toolChunk(call(0, "c1", "a", `{"x"`)) + contentChunk("So") + toolChunk(more(0, ":1")) + contentChunk(".") +
			toolChunk(more(0, "}")) + contentChunk("!") + finishChunk("stop") + upstreamDone,
		`tool:c1 a {"x":1} text:So.! | tool_use`, `function_call:c1 a {"x":1} message:So.! | completed`, nil,
	},
	{
		"calls without arguments",
		toolChunk(call(0, "c1", "a", "")) + toolChunk(call(1, "c2", "b", "")) + contentChunk("So.") +
			finishChunk("tool_calls") + upstreamDone,
		"tool:c1 a  tool:c2 b  text:So. | tool_use",
		"function_call:c1 a {} function_call:c2 b {} message:So. | completed", nil,
	},
	{
		"arguments null, white space, or an object",
		toolChunk(call(0, "c1", "a", "null"), call(1, "c2", "b", " \n"),
			`{"index":2,"id":"c3","function":{"name":"c","arguments":{"x":[1, 2]}}}`,
			`{"index":3,"id":"c4","function":{"name":"d","arguments":null}}`) + finishChunk("tool_calls") + upstreamDone,
		`tool:c1 a  tool:c2 b  tool:c3 c {"x":[1, 2]} tool:c4 d  | tool_use`,
		`function_call:c1 a {} function_call:c2 b {} function_call:c3 c {"x":[1, 2]} function_call:c4 d {} | completed`, nil,
	},
	{
		"arguments that are a string, an array, a number or no JSON",
		toolChunk(call(0, "c1", "a", `"{\"x\":`)) + toolChunk(more(0, `1}"`)) + toolChunk(call(1, "c2", "b", "[1]")) +
			toolChunk(call(2, "c3", "c", "5")) + toolChunk(call(3, "c4", "d", "x=1")) + toolChunk(more(3, "}")) +
			finishChunk("tool_calls") + upstreamDone,
		`tool:c1 a {"x":1} tool:c2 b {"raw_arguments":"[1]"} tool:c3 c {"raw_arguments":"5"} tool:c4 d ` +
			`{"raw_arguments":"x=1}"} | tool_use`,
		`function_call:c1 a {"x":1} function_call:c2 b {"raw_arguments":"[1]"} function_call:c3 c {"raw_arguments":"5"} ` +
			`function_call:c4 d {"raw_arguments":"x=1}"} | completed`, nil,
	},
	{
		"arguments that stop being JSON",
		toolChunk(call(0, "c1", "a", `{"x":`)) + toolChunk(more(0, `oops}`)) + finishChunk("tool_calls") + upstreamDone,
		`tool:c1 a {"x":oops} !api_error: ` + badArguments, "| failed !server_error: " + badArguments, nil,
	},
	{
		"arguments twice",
		toolChunk(call(0, "c1", "a", `{"x":1}`)) + toolChunk(more(0, " \n")) + toolChunk(more(0, `{"x":1}`)) +
			finishChunk("tool_calls") + upstreamDone,
		`tool:c1 a {"x":1} !api_error: ` + badArguments, "| failed !server_error: " + badArguments, nil,
	},
	{
		"arguments for a call that is closed",
		toolChunk(call(0, "c1", "a", `{"x":1}`)) + contentChunk("So.") + toolChunk(more(0, " ")) + toolChunk(more(0, `,`)) +
			finishChunk("tool_calls") + upstreamDone,
		`tool:c1 a {"x":1} text:So. !api_error: ` + badArguments,
		`function_call:c1 a {"x":1} | failed !server_error: ` + badArguments, nil,
	},
	{
		"half a call that claims to be whole",
		toolChunk(call(0, "c1", "a", `{"x":`)) + finishChunk("tool_calls") + upstreamDone,
		`tool:c1 a {"x": !api_error: ` + badArguments, "| failed !server_error: " + badArguments, nil,
	},
	{
		"limit within text",
		contentChunk("Hel") + finishChunk("length") + usageChunk(3, 0, 1) + upstreamDone,
		"text:Hel | max_tokens", "message:Hel (incomplete) | incomplete max_output_tokens", nil,
	},
	{
		"limit within a call",
		contentChunk("Hel") + toolChunk(call(0, "c1", "a", `{`)) + finishChunk("length") + upstreamDone,
		"text:Hel tool:c1 a { | max_tokens",
		"message:Hel function_call:c1 a { (incomplete) | incomplete max_output_tokens", nil,
	},
	{
		"limit within interleaved calls",
		toolChunk(call(0, "c1", "a", `{"x":`)) + toolChunk(call(1, "c2", "b", `{"y":`)) + contentChunk("So") +
			finishChunk("length") + upstreamDone,
		`tool:c1 a {"x": tool:c2 b {"y": text:So | max_tokens`,
		`function_call:c1 a {"x": (incomplete) function_call:c2 b {"y": (incomplete) message:So (incomplete) | incomplete ` +
			`max_output_tokens`, nil,
	},
	{
		"limit within a custom call",
		toolChunk(call(0, "c1", "apply_patch", `{"input":"*** Begin\n`)) + finishChunk("length") + upstreamDone,
		`tool:c1 apply_patch {"input":"*** Begin\n | max_tokens`,
		"custom_tool_call:c1 apply_patch *** Begin\n (incomplete) | incomplete max_output_tokens", withTools,
	},
	{
		"limit within thinking",
		reasonChunk("hm") + finishChunk("length") + upstreamDone,
		"thinking:hm | max_tokens", "reasoning:hm (incomplete) | incomplete max_output_tokens", nil,
	},
	{
		"content filter",
		contentChunk("Hel") + finishChunk("content_filter") + upstreamDone,
		"text:Hel | refusal", "message:Hel (incomplete) | incomplete content_filter", nil,
	},
	{
		"refusal",
		deltaChunk(`"content":"","refusal":"I can"`) + deltaChunk(`"refusal":"not."`) + finishChunk("stop") + upstreamDone,
		"text:I cannot. | refusal", "refusal:I cannot. | completed", nil,
	},
	{
		"text, then refusal",
		contentChunk("Well.") + deltaChunk(`"refusal":"No."`) + finishChunk("stop") + upstreamDone,
		"text:Well. text:No. | refusal", "message:Well. refusal:No. | completed", nil,
	},
	{
		"thinking is to be omitted",
		reasonChunk("hm") + contentChunk("Hi") + finishChunk("stop") + upstreamDone,
		"thinking: text:Hi | end_turn", "reasoning:hm message:Hi | completed", func(r *reply) { r.omitThinking = true },
	},
	{
		"thinking is to be encrypted",
		reasonChunk("hm \"é\"\n") + contentChunk("Hi") + finishChunk("stop") + upstreamDone,
		"thinking:hm \"é\"\n text:Hi | end_turn", "reasoning:hm \"é\"\n message:Hi | completed",
		func(r *reply) { r.encrypted = true },
	},
	{
		"shells and patches",
		toolChunk(call(0, "c1", "local_shell",
			`{"command":["ls","-l"],"timeout_ms":5,"workdir":"/x","env":{"A":"b","N":1}}`)) +
			toolChunk(call(1, "c2", "shell", `{"commands":["ls","pwd"]}`)) +
			toolChunk(call(2, "c3", "patch", `{"type":"update_file","path":"a","diff":"+x"}`)) +
			toolChunk(call(3, "c4", "patch", `{"type":"delete_file","path":"a"}`)) +
			toolChunk(call(4, "c5", "local_shell", `ls`)) + finishChunk("tool_calls") + upstreamDone,
		`tool:c1 local_shell {"command":["ls","-l"],"timeout_ms":5,"workdir":"/x","env":{"A":"b","N":1}} tool:c2 shell ` +
			`{"commands":["ls","pwd"]} tool:c3 apply_patch {"type":"update_file","path":"a","diff":"+x"} tool:c4 apply_patch ` +
			`{"type":"delete_file","path":"a"} tool:c5 local_shell {"raw_arguments":"ls"} | tool_use`,
		`local_shell_call:c1 {"command":["ls","-l"],"env":{"A":"b","N":"1"},"timeout_ms":5,"type":"exec","user":null,` +
			`"working_directory":"/x"} shell_call:c2 {"commands":["ls","pwd"],"max_output_length":null,"timeout_ms":null} ` +
			`apply_patch_call:c3 {"diff":"+x","path":"a","type":"update_file"} apply_patch_call:c4 {"path":"a",` +
			`"type":"delete_file"} local_shell_call:c5 {"command":[],"env":{},"timeout_ms":null,"type":"exec","user":null,` +
			`"working_directory":null} | completed`, withTools,
	},
	{
		"name never comes",
		toolChunk(`{"index":0,"id":"c1","function":{"arguments":"{\"x\":1}"}}`) +
			toolChunk(`{"index":1,"function":{"arguments":"{}"}}`) + toolChunk(`{"index":2,"type":"function"}`) +
			finishChunk("tool_calls") + upstreamDone,
		"!api_error: The model server sent the arguments of a tool call without the tool's name. Try again.",
		"| failed !server_error: The model server sent the arguments of a tool call without the tool's name. Try again.", nil,
	},
	{
		"an id alone behind finished text is no call",
		contentChunk("Hi") + finishChunk("stop") + toolChunk(`{"index":0,"id":"c1"}`) + upstreamDone,
		"text:Hi | end_turn", "message:Hi | completed", nil,
	},
	{
		"what has no name behind finished text is no call",
		contentChunk("Hi") + finishChunk("stop") +
			toolChunk(`{"index":0,"id":"c1","type":"function","function":{"name":"","arguments":"{\"a\":1}"}}`) +
			deltaChunk(`"function_call":{"arguments":"{}"}`) + upstreamDone,
		"text:Hi | end_turn", "message:Hi | completed", nil,
	},
	{
		"an id alone is no call, and ends no turn",
		toolChunk(`{"index":0,"id":"c1","type":"function"}`) + finishChunk("tool_calls") + upstreamDone,
		"| end_turn", "message: | completed", nil,
	},
	{
		"a call among those without a name",
		toolChunk(`{"index":0,"id":"c1"}`) + toolChunk(`{"index":1,"id":"c2","function":{"name":"a","arguments":"{}"}}`) +
			toolChunk(`{"index":2,"function":{"arguments":" {} "}}`) + finishChunk("tool_calls") + upstreamDone,
		"tool:c2 a {} | tool_use", "function_call:c2 a {} | completed", nil,
	},
	{
		"an id alone and the end without a reason",
		toolChunk(`{"index":0,"id":"c1"}`) + upstreamDone,
		"!api_error: The upstream stream ended unexpectedly: the model server stopped before the answer was complete. Try " +
			"again.",
		"| failed !server_error: The upstream stream ended unexpectedly: the model server stopped before the answer was " +
			"complete. Try again.", nil,
	},
	{
		"a slot with nothing in it is no call",
		contentChunk("Hi") + toolChunk(`{"index":0,"type":"function","function":{"name":null,"arguments":""}}`) +
			finishChunk("tool_calls") + upstreamDone,
		"text:Hi | end_turn", "message:Hi | completed", nil,
	},
}
