package dialect

import "testing"

// useA is an assistant's message that calls a tool, calledA the upstream's message for it.
const (
	useA    = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}`
	calledA = `{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"f",` +
		`"arguments":"{}"}}]}`
	useAB = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use",` +
		`"id":"b","name":"g","input":{}}]}`
	callAB = `{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"f",` +
		`"arguments":"{}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]}`
	pngIn   = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBO"}}`
	chatPNG = `{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBO"}}`
)

// userSays returns a user's message with blocks.
func userSays(blocks string) string { return `{"role":"user","content":[` + blocks + `]}` }

// assistantSays returns an assistant's message with blocks.
func assistantSays(blocks string) string { return `{"role":"assistant","content":[` + blocks + `]}` }

// toolSays returns the message of a result in the chat dialect.
func toolSays(id, text string) string {
	return `{"role":"tool","tool_call_id":` + quoted(id) + `,"content":` + quoted(text) + `}`
}

// saying returns a message with one text in the chat dialect.
func saying(role, text string) string {
	return `{"role":` + quoted(role) + `,"content":` + quoted(text) + `}`
}

// reminder returns system text that is folded into another message.
func reminder(text string) string {
	return "<system-reminder>\n" + text + "\n</system-reminder>"
}

// result returns a block with the result of a call. more has further members.
func result(id, members string) string {
	if members != "" {
		members = "," + members
	}
	return `{"type":"tool_result","tool_use_id":` + quoted(id) + members + `}`
}

// blockCases are the messages of a request, and those of the upstream's.
var blockCases = []struct{ name, in, want string }{
	// Text.
	{"a string", saying("user", "u"), saying("user", "u")},
	{
		"one text", userSays(`{"type":"text","text":"u","cache_control":{"type":"ephemeral"},"citations":[]}`),
		saying("user", "u"),
	},
	{
		"several texts are one string",
		userSays(`{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"b"}`), saying("user", "a\nb"),
	},
	{
		"an empty message is dropped", saying("user", "") + "," + saying("user", "u") + `,{"role":"assistant","content":[]}`,
		saying("user", "u"),
	},
	{
		"escapes, and what is no Unicode", `{"role":"user","content":"\u00e9\ud83d\ude00\ud800\"\\\/\n"}`,
		`{"role":"user","content":"é😀` + "\uFFFD" + `\"\\/\n"}`,
	},

	// Images and documents.
	{
		"an image keeps its place", userSays(`{"type":"text","text":"a"},` + pngIn + `,{"type":"text","text":"b"}`),
		userSays(`{"type":"text","text":"a"},` + chatPNG + `,{"type":"text","text":"b"}`),
	},
	{"a text document", userSays(`{"type":"document","title":"T","context":"c","source":{"type":"text",` +
		`"media_type":"text/plain","data":"d"}}`), saying("user", "<document title=\"T — c\">\nd\n</document>")},
	{
		"a document of encoded text",
		userSays(`{"type":"document","title":"say \"T\"","source":{"type":"base64","media_type":"Text/Plain",` +
			`"data":"aMOp"}}`),
		saying("user", "<document title=\"say 'T'\">\nhé\n</document>"),
	},
	{
		"a document without a title",
		userSays(`{"type":"document","source":{"type":"text","media_type":"text/plain","data":"d"}}`),
		saying("user", "<document>\nd\n</document>"),
	},
	{
		"a document of blocks", userSays(`{"type":"document","title":"T","source":{"type":"content",` +
			`"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}`),
		saying("user", "<document title=\"T\">\na\nb\n</document>"),
	},
	{"a search result", userSays(`{"type":"search_result","title":"T","source":"S","content":[{"type":"text",` +
		`"text":"a"},{"type":"text","text":"b"}]}`), saying("user", "T — S\na\nb")},

	// The assistant.
	{
		"thinking goes up under both names",
		assistantSays(`{"type":"thinking","thinking":"t","signature":"whatever"},{"type":"text","text":"a"}`),
		`{"role":"assistant","content":"a","reasoning_content":"t","reasoning":"t"}`,
	},
	{"nothing but thinking", assistantSays(`{"type":"thinking","thinking":"t","signature":""}`) + "," +
		saying("user", "u"), `{"role":"assistant","content":"","reasoning_content":"t","reasoning":"t"},` +
		saying("user", "u")},
	{
		"thinking of the user's is ignored", userSays(`{"type":"thinking","thinking":"t"},{"type":"text","text":"u"}`),
		saying("user", "u"),
	},
	{
		"redacted thinking is dropped", assistantSays(`{"type":"redacted_thinking","data":"x"},{"type":"text","text":"a"}`),
		saying("assistant", "a"),
	},
	{"a call without text", useA, calledA},
	{
		"text before and behind a call",
		assistantSays(`{"type":"text","text":"x"},{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"text",` +
			`"text":"y"}`),
		`{"role":"assistant","content":"x\ny","tool_calls":[{"id":"a","type":"function","function":{"name":"f",` +
			`"arguments":"{}"}}]}`,
	},
	{
		"a call's input is compact, and otherwise as it was",
		assistantSays(`{"type":"tool_use","id":"a","name":"f","input":{ "b" : [ 1.0, 2e3 ],` + "\n\t" +
			`"a" : " x \" y " }}`),
		`{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"f",` +
			`"arguments":"{\"b\":[1.0,2e3],\"a\":\" x \\\" y \"}"}}]}`,
	},
	{"a call's input is null", assistantSays(`{"type":"tool_use","id":"a","name":"f","input":null}`), calledA},
	{"a call's input is missing", assistantSays(`{"type":"tool_use","id":"a","name":"f"}`), calledA},
	{
		"two messages of the assistant are one turn", saying("assistant", "x") + "," + useA,
		`{"role":"assistant","content":"x","tool_calls":[{"id":"a","type":"function","function":{"name":"f",` +
			`"arguments":"{}"}}]}`,
	},

	// Results.
	{"a result", useA + "," + userSays(result("a", `"content":"r"`)), calledA + "," + toolSays("a", "r")},
	{
		"a result of blocks", useA + "," +
			userSays(result("a", `"content":[{"type":"text","text":"r"},{"type":"text","text":"s"}]`)),
		calledA + "," + toolSays("a", "r\ns"),
	},
	{"a result without content", useA + "," + userSays(result("a", "")), calledA + "," + toolSays("a", "")},
	{
		"a result whose content is empty", useA + "," + userSays(result("a", `"content":[]`)),
		calledA + "," + toolSays("a", ""),
	},
	{
		"results come in the order of the calls, text behind them",
		useAB + "," + userSays(`{"type":"text","text":"u"},`+result("b", `"content":"2"`)+","+result("a", `"content":"1"`)),
		callAB + "," + toolSays("a", "1") + "," + toolSays("b", "2") + "," + saying("user", "u"),
	},
	{
		"images of results come behind all of them, before the user's text",
		useAB + "," + userSays(result("a", `"content":[{"type":"text","text":"ok"},`+pngIn+`]`)+","+
			result("b", `"content":[`+pngIn+`]`)+`,{"type":"text","text":"go on"}`),
		callAB + "," + toolSays("a", "ok\n[image]") + "," + toolSays("b", "[image]") + "," +
			userSays(chatPNG+","+chatPNG+`,{"type":"text","text":"go on"}`),
	},
	{
		"images of results, and the assistant goes on",
		useA + "," + userSays(result("a", `"content":[`+pngIn+`]`)) + "," + saying("assistant", "x"),
		calledA + "," + toolSays("a", "[image]") + "," + userSays(chatPNG) + "," + saying("assistant", "x"),
	},
	{
		"a failed result", useA + "," + userSays(result("a", `"is_error":true,"content":"City not found"`)),
		calledA + "," + toolSays("a", "Error: City not found"),
	},
	{
		"a failed result that says so", useA + "," + userSays(result("a", `"is_error":true,"content":"ERROR 7"`)),
		calledA + "," + toolSays("a", "ERROR 7"),
	},
	{
		"a failed result without content", useA + "," + userSays(result("a", `"is_error":true`)),
		calledA + "," + toolSays("a", "Error: tool failed"),
	},
	{
		"a result of no call", userSays(result("z", `"content":"r"`) + `,{"type":"text","text":"u"}`),
		saying("user", "[tool result z]\nr") + "," + saying("user", "u"),
	},
	{
		"a search result in a result",
		useA + "," + userSays(result("a",
			`"content":[{"type":"search_result","title":"T","source":"S","content":[{"type":"text","text":"x"}]}]`)),
		calledA + "," + toolSays("a", "T — S\nx"),
	},
	{
		"a tool reference", useA + "," +
			userSays(result("a", `"content":[{"type":"tool_reference","tool_name":"WebFetch"},{"type":"x","x":1}]`)),
		calledA + "," + toolSays("a", "[tool: WebFetch]"),
	},
	{
		"the state of a browser", useA + "," +
			userSays(result("a", `"content":[{"type":"browser_state","tabs":[{"tab_id": "t"}],"cache_control":null}]`)),
		calledA + "," + toolSays("a", `{"tabs":[{"tab_id":"t"}],"state_changes":null}`),
	},

	// Hosted tools.
	{
		"a hosted tool and what it found",
		assistantSays(`{"type":"server_tool_use","id":"s","name":"web_search","input":{"query": "q"}},` +
			`{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","title":"T",` +
			`"url":"https://example.com","encrypted_content":"x"},{"type":"web_search_result","title":"",` +
			`"url":"https://example.org"}]},{"type":"text","text":"so"}`),
		saying("assistant", "[web_search {\"query\":\"q\"}]\n[web_search_tool_result]\ntitle: T\nurl: https://example.com\n"+
			"url: https://example.org\nso"),
	},
	{
		"other hosted tools",
		assistantSays(`{"type":"web_search_tool_result","tool_use_id":"s",` +
			`"content":{"type":"web_search_tool_result_error","error_code":"x"}},` +
			`{"type":"code_execution_tool_result","content":{"stdout":"a","stderr":"b","return_code":1}},` +
			`{"type":"text_editor_code_execution_tool_result","content":{"lines":["-a","+b"]}},` +
			`{"type":"web_fetch_tool_result","content":{"url":"u","content":{"type":"document","source":{"type":"base64",` +
			`"media_type":"application/pdf","data":"JVBE"}}}},` +
			`{"type":"tool_search_tool_result","content":{"tool_references":[{"type":"tool_reference","tool_name":"n"}]}},` +
			`{"type":"mcp_tool_use","id":"m","name":"n","input":{}},{"type":"mcp_tool_result","tool_use_id":"m",` +
			`"content":[{"type":"text","text":"t"}]}`),
		saying("assistant", "[web_search_tool_result]\nerror_code: x\n[code_execution_tool_result]\nstdout: a\nstderr: b\n"+
			"return_code: 1\n[text_editor_code_execution_tool_result]\nlines: -a\nlines: +b\n[web_fetch_tool_result]\nurl: u\n"+
			"[tool_search_tool_result]\ntool_name: n\n[n {}]\n[mcp_tool_result]\nt"),
	},
	{
		"what is dropped", assistantSays(`{"type":"code_execution_tool_result","content":{}},` +
			`{"type":"container_upload"},{"type":"compaction","content":null},{"type":"fallback"},` +
			`{"type":"tool_addition"},{"type":"tool_removal"},{"type":"never_heard_of"},{},{"type":"text","text":"a"}`),
		saying("assistant", "a"),
	},
	{
		"what is dropped of the user's",
		userSays(`{"type":"container_upload","file_id":"f"},{"type":"never_heard_of"},{},{"type":"text","text":"u"}`),
		saying("user", "u"),
	},

	// Blocks that change the conversation.
	{
		"a compaction", useA + "," + assistantSays(`{"type":"text","text":"b"},{"type":"compaction","content":"c"},`+
			`{"type":"text","text":"a"}`) + "," + userSays(result("a", `"content":"r"`)+`,{"type":"text","text":"u"}`),
		saying("user", "c") + "," + saying("assistant", "a") + "," + saying("user", "[tool result a]\nr") + "," +
			saying("user", "u"),
	},
	{
		"a compaction in a message of the user's",
		userSays(`{"type":"text","text":"b"},{"type":"compaction","content":"c"},{"type":"text","text":"u"}`),
		saying("user", "c") + "," + saying("user", "u"),
	},
	{
		"a compaction that failed", saying("user", "u") + "," + assistantSays(`{"type":"compaction","content":null}`),
		saying("user", "u"),
	},
	{
		"system text in a message of the user's",
		userSays(`{"type":"text","text":"u"},{"type":"mid_conv_system","content":[{"type":"text","text":"s"},` +
			`{"type":"mid_conv_system","content":[{"type":"text","text":"deeper"}]}]},{"type":"text","text":"v"}`),
		saying("user", "u\n\n"+reminder("s")) + "," + saying("user", "v"),
	},
	{
		"a result does not change the conversation", saying("user", "u") + "," + useA + "," + userSays(result("a",
			`"content":[{"type":"compaction","content":"c"},{"type":"mid_conv_system","content":[{"type":"text",`+
				`"text":"s"}]}]`)),
		saying("user", "u") + "," + calledA + "," + toolSays("a", "[compaction]\nc\n[mid_conv_system]\ns"),
	},

	// System text.
	{
		"system text in front", saying("system", "a") + "," + saying("system", "b") + "," + saying("user", "u"),
		saying("system", "a\n\nb") + "," + saying("user", "u"),
	},
	{
		"system text behind the user", saying("user", "u") + "," + saying("system", "s") + "," + saying("assistant", "x"),
		saying("user", "u\n\n"+reminder("s")) + "," + saying("assistant", "x"),
	},
	{
		"system blocks behind the user",
		saying("user", "u") + `,{"role":"system","content":[{"type":"text","text":"s",` +
			`"cache_control":{"type":"ephemeral"}},{"type":"tool_addition","tool":{}},{"type":"text","text":"t"}]}`,
		saying("user", "u\n\n"+reminder("s\n\nt")),
	},
	{
		"system text twice", saying("user", "u") + "," + saying("system", "s") + "," + saying("system", "t"),
		saying("user", "u\n\n"+reminder("s")+"\n\n"+reminder("t")),
	},
	{
		"system text behind an image", userSays(pngIn) + "," + saying("system", "s"),
		userSays(chatPNG + `,{"type":"text","text":` + quoted(reminder("s")) + `}`),
	},
	{
		"system text behind a result with an image, before the user",
		useA + "," + userSays(result("a", `"content":[`+pngIn+`]`)) + "," + saying("system", "s") + "," + saying("user", "u"),
		calledA + "," + toolSays("a", "[image]\n\n"+reminder("s")) + "," + userSays(chatPNG+`,{"type":"text","text":"u"}`),
	},
	{
		"system text between a call and its result",
		useA + "," + saying("system", "s") + "," + userSays(result("a", `"content":"r"`)),
		calledA + "," + toolSays("a", "r\n\n"+reminder("s")),
	},
	{
		"system text behind results",
		useAB + "," + userSays(result("b", `"content":"2"`)+","+result("a", `"content":"1"`)) + "," + saying("system", "s"),
		callAB + "," + toolSays("a", "1") + "," + toolSays("b", "2\n\n"+reminder("s")),
	},
	{
		"system text behind the assistant",
		saying("assistant", "x") + "," + saying("system", "s") + "," + saying("user", "u"),
		saying("assistant", "x") + "," + saying("user", reminder("s")+"\n\nu"),
	},
	{
		"system text behind the assistant, and no more", saying("assistant", "x") + "," + saying("system", "s"),
		saying("assistant", "x") + "," + saying("user", reminder("s")),
	},
	{
		"system text between two messages of the assistant",
		saying("assistant", "x") + "," + saying("system", "s") + "," + saying("assistant", "y"),
		saying("assistant", "x") + "," + saying("user", reminder("s")) + "," + saying("assistant", "y"),
	},
	{"empty system text", saying("user", "u") + "," + saying("system", ""), saying("user", "u")},
}

func TestMessagesBlocks(t *testing.T) {
	for _, c := range blockCases {
		t.Run(c.name, func(t *testing.T) {
			fields := upstreamFields(t, messagesOp, `{"model":"public","max_tokens":9,"messages":[`+c.in+`]}`)
			checkFields(t, fields, map[string]string{"messages": "[" + c.want + "]"})
		})
	}
}

// The billing line, which changes with each request, is removed from system text only.
func TestMessagesBillingLine(t *testing.T) {
	const line = "x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch=a5145;"
	for _, c := range []struct{ name, system, want string }{
		{"a block of its own", `[{"type":"text","text":` + quoted(line) + `},{"type":"text","text":"You"}]`, "You"},
		{"a block with more", `[{"type":"text","text":` + quoted(line+"\nYou") + `}]`, "You"},
		{"a string with a line feed", quoted(line + "\nYou"), "You"},
		{"a string without a line feed", quoted(line + " You"), "You"},
		{"a string without a line feed but one later", quoted(line + "You are\nthe model"), "You are\nthe model"},
		{"a string that is nothing else", quoted(line), ""},
		{"a string with members behind the nonce", quoted(line + " cc_more=1;\nYou"), "You"},
		{"without a nonce", quoted("x-anthropic-billing-header: cc_version=2;\nYou"), "You"},
		{"not in front", quoted("You\n" + line), "You\n" + line},
		{"another name", quoted("x-anthropic-billing: 1\nYou"), "x-anthropic-billing: 1\nYou"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := saying("user", line)
			if c.want != "" {
				want = saying("system", c.want) + "," + want
			}
			fields := upstreamFields(t, messagesOp,
				`{"model":"public","max_tokens":9,"system":`+c.system+`,"messages":[`+saying("user", line)+`]}`)
			checkFields(t, fields, map[string]string{"messages": "[" + want + "]"})
		})
	}
}
