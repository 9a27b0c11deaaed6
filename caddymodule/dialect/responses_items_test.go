package dialect

import (
	"strings"
	"testing"
)

// responsesOp is the operation of the responses dialect.
var responsesOp = Operation{Kind: CreateResponse, Dialect: Responses}

// Items of an input, as clients send them.
const (
	itemU      = `{"role":"user","content":"u"}`
	itemCallA  = `{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{}","status":"completed"}`
	itemImage  = `{"type":"input_image","image_url":"data:image/png;base64,iVBO"}`
	itemReason = `{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"content":null,` +
		`"encrypted_content":null}`
)

// chatU is the upstream's message for itemU.
var chatU = saying("user", "u")

// itemMessage is a message item of parts.
func itemMessage(role, parts string) string {
	return `{"type":"message","role":` + quoted(role) + `,"content":[` + parts + `]}`
}

// itemOutput is the result of a function's call; output is JSON.
func itemOutput(id, output string) string {
	return `{"type":"function_call_output","call_id":` + quoted(id) + `,"output":` + output + `}`
}

// chatCall returns an assistant's message of the chat dialect: members that precede its calls, and
// calls, each with an id, a name and arguments.
func chatCall(content, members string, calls ...[3]string) string {
	b := `{"role":"assistant","content":` + quoted(content) + members + `,"tool_calls":[`
	for i, c := range calls {
		if i > 0 {
			b += ","
		}
		b += `{"id":` + quoted(c[0]) + `,"type":"function","function":{"name":` + quoted(c[1]) + `,"arguments":` +
			quoted(c[2]) + `}}`
	}
	return b + "]}"
}

// thought returns an assistant's message of the chat dialect with its reasoning.
const thought = `,"reasoning_content":"hm","reasoning":"hm"`

// itemCases are the items of an input, and the messages of the upstream's.
var itemCases = []struct{ name, in, want string }{
	// Messages.
	{"without a type", itemU, chatU},
	{
		"with all that a message may have",
		`{"type":"message","id":"msg_1","status":"completed","phase":"final","role":"user",` +
			`"content":[{"type":"input_text","text":"u"}],"internal":1}`, chatU,
	},
	{"every kind of text", itemMessage("user",
		`{"type":"input_text","text":"a"},{"type":"text","text":"b"},{"type":"input_text","text":""},`+
			`{"type":"output_text","text":"c"}`), saying("user", "a\nb\nc")},
	{
		"the assistant", itemU + "," +
			itemMessage("assistant", `{"type":"output_text","text":"a","annotations":[],"logprobs":[]}`),
		chatU + "," + saying("assistant", "a"),
	},
	{
		"a refusal", itemU + "," + itemMessage("assistant", `{"type":"refusal","refusal":"no"}`),
		chatU + "," + saying("assistant", "no"),
	},
	{
		"system and developer in front",
		itemMessage("system", `{"type":"input_text","text":"s"}`) + `,{"role":"developer","content":"d"},` + itemU,
		saying("system", "s\n\nd") + "," + chatU,
	},
	{
		"developer behind the user", itemU + `,{"role":"developer","content":"d"},{"role":"assistant","content":"a"}`,
		saying("user", "u\n\n"+reminder("d")) + "," + saying("assistant", "a"),
	},
	{
		"developer behind a call", itemU + "," + itemCallA + `,{"role":"developer","content":"d"},` + itemOutput("a", `"r"`),
		chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}) + "," + toolSays("a", "r\n\n"+reminder("d")),
	},
	{
		"developer behind the assistant",
		itemU + `,{"role":"assistant","content":"a"},{"role":"developer","content":"d"},` + itemU,
		chatU + "," + saying("assistant", "a") + "," + saying("user", reminder("d")+"\n\nu"),
	},
	{"an empty message", itemU + `,{"role":"assistant","content":""},{"role":"assistant","content":[]},{"role":"user",` +
		`"content":null}`, chatU},

	// Images, files, audio.
	{
		"an image", itemMessage("user", `{"type":"input_text","text":"a"},`+itemImage+`,{"type":"input_text","text":"b"}`),
		userSays(`{"type":"text","text":"a"},` + chatPNG + `,{"type":"text","text":"b"}`),
	},
	{
		"an image's address and detail",
		itemMessage("user", `{"type":"input_image","image_url":"data:image/png,x","detail":"low"}`),
		userSays(`{"type":"image_url","image_url":{"url":"data:image/png,x","detail":"low"}}`),
	},
	{
		"detail auto", itemMessage("user", `{"type":"input_image","image_url":"data:,x","detail":"auto"}`),
		userSays(`{"type":"image_url","image_url":{"url":"data:,x","detail":"auto"}}`),
	},
	{
		"detail high", itemMessage("user", `{"type":"input_image","image_url":"data:,x","detail":"high"}`),
		userSays(`{"type":"image_url","image_url":{"url":"data:,x","detail":"high"}}`),
	},
	{
		"detail original", itemMessage("user", `{"type":"input_image","image_url":"data:,x","detail":"original"}`),
		userSays(`{"type":"image_url","image_url":{"url":"data:,x","detail":"high"}}`),
	},
	{
		"another detail", itemMessage("user", `{"type":"input_image","image_url":"data:,x","detail":"ultra"}`),
		userSays(`{"type":"image_url","image_url":{"url":"data:,x"}}`),
	},
	{
		"a file of text", itemMessage("user",
			`{"type":"input_file","filename":"a.md","file_data":"data:text/markdown;base64,aMOp"}`),
		saying("user", "<document title=\"a.md\">\nhé\n</document>"),
	},
	{
		"a file of text that is not base64", itemMessage("user", `{"type":"input_file","file_data":"data:,a%20b"}`),
		saying("user", "<document>\na b\n</document>"),
	},
	{
		"a file without padding, its type with parameters",
		itemMessage("user", `{"type":"input_file","file_data":"data:Text/CSV;charset=utf-8;base64,YQ"}`),
		saying("user", "<document>\na\n</document>"),
	},
	{
		"an image as the chat dialect has it",
		itemMessage("user", `{"type":"input_image","image_url":{"url":"data:image/png;base64,iVBO"}}`), userSays(chatPNG),
	},
	{
		"audio", itemMessage("user", `{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}`),
		userSays(`{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}`),
	},

	// Calls and results.
	{
		"a call and its result", itemU + "," + itemCallA + "," + itemOutput("a", `"r"`),
		chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}) + "," + toolSays("a", "r"),
	},
	{
		"calls at once", itemU + "," + itemCallA + `,{"type":"function_call","call_id":"b","name":"g","arguments":"{}"},` +
			itemOutput("b", `"2"`) + "," + itemOutput("a", `"1"`),
		chatU + "," + callAB + "," + toolSays("a", "1") + "," + toolSays("b", "2"),
	},
	{
		"arguments as they were", itemU +
			`,{"type":"function_call","call_id":"a","name":"f","arguments":"{\"b\":1.0,\"a\":2}"}`,
		chatU + "," + chatCall("", "", [3]string{"a", "f", `{"b":1.0,"a":2}`}),
	},
	{
		"no arguments", itemU + `,{"type":"function_call","call_id":"a","name":"f","arguments":""}`,
		chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}),
	},
	{
		"broken arguments", itemU + `,{"type":"function_call","call_id":"a","name":"f","arguments":"{\"b\":"}`,
		chatU + "," + chatCall("", "", [3]string{"a", "f", `{"raw_arguments":"{\"b\":"}`}),
	},
	{
		"text before a call", itemU + `,{"role":"assistant","content":"x"},` + itemCallA,
		chatU + "," + chatCall("x", "", [3]string{"a", "f", "{}"}),
	},
	{
		"text between a call and its result",
		itemU + "," + itemCallA + `,{"role":"assistant","content":"x"},` + itemOutput("a", `"r"`),
		chatU + "," + chatCall("x", "", [3]string{"a", "f", "{}"}) + "," + toolSays("a", "r"),
	},
	{
		"text behind the result", itemU + "," + itemCallA + "," + itemOutput("a", `"r"`) +
			`,{"role":"assistant","content":"x"}`,
		chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}) + "," + toolSays("a", "r") + "," +
			saying("assistant", "x"),
	},
	{
		"a result of parts", itemU + "," + itemCallA + "," +
			itemOutput("a", `[{"type":"input_text","text":"r"},{"type":"input_text","text":"s"}]`),
		chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}) + "," + toolSays("a", "r\ns"),
	},
	{
		"a result with an image", itemU + "," + itemCallA + "," +
			itemOutput("a", `[{"type":"input_text","text":"r"},`+itemImage+`]`),
		chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}) + "," + toolSays("a", "r\n[image]") + "," +
			userSays(chatPNG),
	},
	{
		"a result whose parts are a string", itemU + "," + itemCallA + "," + itemOutput("a", quoted("["+itemImage+"]")),
		chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}) + "," + toolSays("a", "[image]") + "," + userSays(chatPNG),
	},
	{
		"a result that is a list, but not of parts",
		itemU + "," + itemCallA + "," + itemOutput("a", `"[1, \"input_image\"]"`),
		chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}) + "," + toolSays("a", `[1, "input_image"]`),
	},
	{"a result of no call", itemU + "," + itemOutput("z", `"r"`), chatU + "," + saying("user", "[tool result z]\nr")},
	{
		"an id that is too long", itemU + `,{"type":"function_call","call_id":"` + strings.Repeat("x", 65) +
			`","name":"f","arguments":"{}"},` + itemOutput(strings.Repeat("x", 65), `"r"`),
		chatU + "," + chatCall("", "", [3]string{stableID(strings.Repeat("x", 65)), "f", "{}"}) + "," +
			toolSays(stableID(strings.Repeat("x", 65)), "r"),
	},
	{
		"an id of just the right length",
		itemU + `,{"type":"function_call","call_id":"` + strings.Repeat("x", 64) + `","name":"f","arguments":"{}"},` +
			itemOutput(strings.Repeat("x", 64), `"r"`),
		chatU + "," + chatCall("", "", [3]string{strings.Repeat("x", 64), "f", "{}"}) + "," +
			toolSays(strings.Repeat("x", 64), "r"),
	},
	{
		"a custom tool's call", itemU +
			`,{"type":"custom_tool_call","id":"ctc_1","call_id":"a","name":"p","input":"x\n"},` +
			`{"type":"custom_tool_call_output","call_id":"a","output":"r"}`,
		chatU + "," + chatCall("", "", [3]string{"a", "p", `{"input":"x\n"}`}) + "," + toolSays("a", "r"),
	},
	{
		"a local shell's call", itemU +
			`,{"type":"local_shell_call","id":"lsc_1","call_id":"a","action":{"type":"exec", "command":["ls"],"env":{}},` +
			`"status":"completed"},{"type":"local_shell_call_output","id":"a","output":"r"}`,
		chatU + "," + chatCall("", "", [3]string{"a", "local_shell", `{"type":"exec","command":["ls"],"env":{}}`}) + "," +
			toolSays("a", "r"),
	},
	{
		"a local shell's result names the item",
		itemU + `,{"type":"local_shell_call","id":"lsc_1","call_id":"a","action":{"command":["ls"]}},` +
			`{"type":"local_shell_call_output","id":"lsc_1","output":"r"}`,
		chatU + "," + chatCall("", "", [3]string{"a", "local_shell", `{"command":["ls"]}`}) + "," + toolSays("a", "r"),
	},
	{
		"a shell's call", itemU + `,{"type":"shell_call","call_id":"a","action":{"commands":["ls"]}},` +
			`{"type":"shell_call_output","call_id":"a","output":[{"stdout":"r","outcome":{"type":"exit","exit_code":0}}]}`,
		chatU + "," + chatCall("", "", [3]string{"a", "shell", `{"commands":["ls"]}`}) + "," +
			toolSays("a", `[{"stdout":"r","outcome":{"type":"exit","exit_code":0}}]`),
	},
	{
		"a patch", itemU + `,{"type":"apply_patch_call","call_id":"a","operation":{"type":"delete_file","path":"p"}},` +
			`{"type":"apply_patch_call_output","call_id":"a","status":"completed","output":"r"}`,
		chatU + "," + chatCall("", "", [3]string{"a", "apply_patch", `{"type":"delete_file","path":"p"}`}) + "," +
			toolSays("a", "r"),
	},
	{
		"a patch that did not work",
		itemU + `,{"type":"apply_patch_call","call_id":"a","operation":{"type":"delete_file","path":"p"}},` +
			`{"type":"apply_patch_call_output","call_id":"a","status":"failed","output":"no p"}`,
		chatU + "," + chatCall("", "", [3]string{"a", "apply_patch", `{"type":"delete_file","path":"p"}`}) + "," +
			toolSays("a", "Error: no p"),
	},
	{
		"a patch without a word", itemU +
			`,{"type":"apply_patch_call","call_id":"a","operation":{"type":"delete_file","path":"p"}},` +
			`{"type":"apply_patch_call_output","call_id":"a","status":"completed"}`,
		chatU + "," + chatCall("", "", [3]string{"a", "apply_patch", `{"type":"delete_file","path":"p"}`}) + "," +
			toolSays("a", "completed"),
	},
	{
		"arguments that are an object", itemU + `,{"type":"function_call","call_id":"a","name":"f","arguments":{"x": 1}}`,
		chatU + "," + chatCall("", "", [3]string{"a", "f", `{"x":1}`}),
	},
	{
		"a result that is an object", itemU + "," + itemCallA + "," + itemOutput("a", `{"x": 1}`),
		chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}) + "," + toolSays("a", `{"x":1}`),
	},

	// Reasoning.
	{
		"reasoning before a message", itemU + "," + itemReason + `,{"role":"assistant","content":"a"}`,
		chatU + `,{"role":"assistant","content":"a"` + thought + "}",
	},
	{
		"reasoning before a call", itemU + "," + itemReason + "," + itemCallA,
		chatU + "," + chatCall("", thought, [3]string{"a", "f", "{}"}),
	},
	{
		"reasoning in its content", itemU +
			`,{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"content":[{"type":"reasoning_text",` +
			`"text":"h"},{"type":"reasoning_text","text":"i"}]},` + itemCallA,
		chatU + "," + chatCall("", `,"reasoning_content":"h\ni","reasoning":"h\ni"`, [3]string{"a", "f", "{}"}),
	},
	{"reasoning of our own", itemU + `,{"type":"reasoning","summary":[],"encrypted_content":"` +
		sealed(reasoningMark, "hm") + `"},` + itemCallA, chatU + "," + chatCall("", thought, [3]string{"a", "f", "{}"})},
	{
		"reasoning that another encrypted",
		itemU + `,{"type":"reasoning","summary":[],"encrypted_content":"gAAAA"},` + itemCallA,
		chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}),
	},
	{
		"reasoning that another encrypted, with a summary",
		itemU + `,{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"gAAAA"},` +
			itemCallA, chatU + "," + chatCall("", thought, [3]string{"a", "f", "{}"}),
	},
	{
		"reasoning of our own that is broken",
		itemU + `,{"type":"reasoning","summary":[],"encrypted_content":"gwr1.?"},` + itemCallA,
		chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}),
	},
	{"trailing reasoning", itemU + "," + itemReason, chatU},
	{
		"reasoning before the user", itemU + "," + itemReason + "," + itemU + `,{"role":"assistant","content":"a"}`,
		chatU + "," + chatU + "," + saying("assistant", "a"),
	},

	// The rest.
	{
		"text of another agent", itemU + `,{"type":"agent_message","content":"x"}`,
		chatU + "," + saying("user", "[agent_message]\nx"),
	},
	{"compaction of our own", `{"type":"compaction","encrypted_content":"` + sealed(compactionMark, "what was") + `"},` +
		itemU, saying("user", "what was") + "," + chatU},
	{"compaction of another", `{"type":"compaction","encrypted_content":"gAAAA"},` + itemU, chatU},
	{
		"hosted tools", itemU + "," + itemReason + `,{"type":"web_search_call","action":{"type":"open_page", "url":"p"}},` +
			`{"type":"file_search_call","queries":["q"],"results":[{"filename":"f","score":1,"text":"t"}]},` +
			`{"type":"code_interpreter_call","code":"c","outputs":[{"type":"logs","logs":"l"},{"type":"image",` +
			`"url":"data:image/png;base64,iVBO"}]},{"type":"computer_call","actions":[{"type":"click","x":1}]},` +
			`{"type":"mcp_call","name":"n","arguments":"{}","output":null,"error":{"type":"http","code":404,"message":"m"}},` +
			`{"type":"program","code":"p()"},{"type":"program_output","result":"o"},` +
			`{"type":"mcp_approval_response","approve":false,"reason":"r"},{"role":"assistant","content":"a"}`,
		chatU + "," + `{"role":"assistant","content":` + quoted("[web_search_call]\naction: "+
			"{\"type\":\"open_page\",\"url\":\"p\"}\n[file_search_call]\nqueries: q\nfilename: f\nt\n"+
			"[code_interpreter_call]\ncode: c\nlogs: l\n[computer_call]\n"+
			"actions: [{\"type\":\"click\",\"x\":1}]\n[mcp_call]\nname: n\narguments: {}\ncode: 404\nmessage: m\n[program]\n"+
			"code: p()") + thought + "}," + saying("user", "[program_output]\nresult: o") + "," +
			saying("user", "[mcp_approval_response]\napprove: false\nreason: r") + "," + saying("assistant", "a"),
	},
	{
		"what is dropped", itemU + `,{"type":"web_search_call","id":"x"},{"type":"file_search_call"},` +
			`{"type":"code_interpreter_call"},{"type":"image_generation_call","result":"x"},{"type":"computer_call"},` +
			`{"type":"computer_call_output"},
			{"type":"mcp_call"},{"type":"mcp_list_tools"},{"type":"mcp_approval_request"},{"type":"program"},` +
			`{"type":"program_output"},{"type":"tool_search_call"},{"type":"compaction_trigger"},{"type":"agent_message"},` +
			`{"type":"acme:item"},{"type":"item_reference","id":"rs_9"}`, chatU,
	},
}

func TestResponsesItems(t *testing.T) {
	for _, c := range itemCases {
		t.Run(c.name, func(t *testing.T) {
			fields := upstreamFields(t, responsesOp, `{"model":"public","input":[`+c.in+`]}`)
			checkFields(t, fields, map[string]string{"messages": "[" + c.want + "]"})
		})
	}
}
