package dialect

import (
	"encoding/json"
	"strings"
	"testing"
)

// adding and removing return blocks about changed tools.
func adding(tool string) string { return `{"type":"tool_addition","tool":` + tool + `}` }

func removing(name string) string {
	return `{"type":"tool_removal","tool":{"type":"tool_reference","name":"` + name + `"}}`
}

// defining returns a tool that is defined in the history.
func defining(name, description string) string {
	return `{"type":"tool_definition","definition":{"name":"` + name + `","description":"` + description + `"}}`
}

// offeredTools returns the names and descriptions of the upstream's tools.
func offeredTools(t *testing.T, c Call) string {
	t.Helper()
	var names []string
	var body struct{ Tools []any }
	if err := json.Unmarshal([]byte(upstreamBody(t, c)), &body); err != nil {
		t.Fatal(err)
	}
	for _, tool := range body.Tools {
		function, _ := dig(tool, "function").(map[string]any)
		names = append(names, strings.TrimSuffix(str(function, "name")+" "+str(function, "description"), " "))
	}
	return strings.Join(names, ", ")
}

func TestToolsOfHistory(t *testing.T) {
	reference := `{"type":"tool_reference","name":"a"}`
	for _, c := range []struct{ name, blocks, tools, dropped string }{
		{"an addition", adding(defining("c", "d")), "a, b, c d", ""},
		{"a removal", removing("a"), "b", ""},
		{"a removal of a tool that the history added", adding(defining("c", "d")) + "," + removing("c"), "a, b", ""},
		{"added again", removing("a") + "," + adding(defining("a", "d")), "b, a d", ""},
		{"another definition", adding(defining("a", "d")) + "," + adding(defining("a", "e")), "b, a e", ""},
		{"a reference to what is offered", adding(reference), "a, b", ""},
		{"a reference to what was removed", removing("a") + "," + adding(reference), "a, b", ""},
		{
			"a reference to another definition", adding(defining("a", "d")) + "," + removing("a") + "," + adding(reference),
			"b, a d", "",
		},
		{"a removal of nothing", removing("x"), "a, b", ""},
		{
			"tools of MCP servers", adding(`{"type":"mcp_toolset_reference","server_name":"s"}`) + "," +
				adding(`{"type":"tool_definition","definition":{"type":"mcp_toolset","mcp_server_name":"s"}}`), "a, b",
			"messages.1.content.0 (tool_addition), messages.1.content.1.tool.definition (mcp_toolset)",
		},
		{"no tool", adding(`null`) + `,{"type":"tool_removal"}`, "a, b", "messages.1.content.0 (tool_addition)"},
		{"a tool that the API implies", adding(`{"type":"tool_definition","definition":{"type":"bash_20250124",` +
			`"name":"bash"}}`), "a, b, bash Runs a command in a persistent shell and returns its output.", ""},
	} {
		for _, message := range []string{
			`{"role":"system","content":[` + c.blocks + `]}`, userSays(c.blocks), assistantSays(c.blocks),
		} {
			t.Run(c.name, func(t *testing.T) {
				call := mustDecode(t, messagesOp, `{"model":"m","max_tokens":9,"tools":[{"name":"a"},{"name":"b"}],"messages":[`+
					saying("user", "u")+","+message+`]}`, testEnv())
				if got := offeredTools(t, call); got != c.tools {
					t.Errorf("tools %s, want %s", got, c.tools)
				}
				if got := call.Dropped(); got != c.dropped {
					t.Errorf("dropped %s, want %s", got, c.dropped)
				}
			})
		}
		t.Run("in a compaction: "+c.name, func(t *testing.T) {
			call := mustDecode(t, messagesOp, `{"model":"m","max_tokens":9,"tools":[{"name":"a"},{"name":"b"}],"messages":[`+
				assistantSays(`{"type":"compaction","content":"c","tool_changes":[`+c.blocks+`]}`)+`]}`, testEnv())
			if got := offeredTools(t, call); got != c.tools {
				t.Errorf("tools %s, want %s", got, c.tools)
			}
		})
	}
}

// A call of a tool that the history defined is answered as any other.
func TestChosenToolOfHistory(t *testing.T) {
	body := func(choice string) string {
		return `{"model":"m","max_tokens":9,"tool_choice":` + choice + `,"tools":[{"name":"a"}],"messages":[` +
			saying("user", "u") + `,{"role":"system","content":[` + adding(defining("c", "d")) + "," + removing("a") + `]}]}`
	}
	if got := offeredTools(t, mustDecode(t, messagesOp, body(`{"type":"tool","name":"c"}`), testEnv())); got != "c d" {
		t.Errorf("tools %s", got)
	}
	_, fault := Decode(messagesOp, []byte(body(`{"type":"tool","name":"a"}`)), testEnv())
	if fault == nil || fault.Param != "tool_choice.name" {
		t.Errorf("a removed tool: %v", fault)
	}
}

func TestHistoryFaults(t *testing.T) {
	for blocks, param := range map[string]string{
		adding(`{"type":"tool_definition","definition":{}}`): "messages.0.content.0.tool.definition.name",
		adding(`{"type":"tool_definition","definition":{"name":"f","input_schema":1}}`): "messages.0.content.0.tool." +
			"definition.input_schema",
		adding(`{"type":"tool_definition","definition":{"type":"web_search_20250305","name":"web_search"}}`): "messages.0." +
			"content.0.tool.definition.type",
		`{"type":"compaction","content":"c","tool_changes":1}`:                "messages.0.content.0.tool_changes",
		`{"type":"compaction","content":"c","tool_changes":[1]}`:              "messages.0.content.0.tool_changes.0",
		`{"type":"mid_conv_system","content":1}`:                              "messages.0.content.0.content",
		`{"type":"mid_conv_system","content":[{"type":"text"}]}`:              "messages.0.content.0.content.0.text",
		`{"type":"text","text":"u"},{"type":"mid_conv_system","content":[1]}`: "messages.0.content.1.content.0",
	} {
		_, fault := Decode(messagesOp, []byte(`{"model":"m","max_tokens":9,"messages":[`+userSays(blocks)+`]}`), testEnv())
		if fault == nil || fault.Param != param || fault.HTTPStatus(Messages) != 400 {
			t.Errorf("%s: %+v, want %s", blocks, fault, param)
		}
	}
}

// What has no text is named, and what means nothing to another model is not.
func TestDroppedHistory(t *testing.T) {
	for _, c := range [][2]string{
		{`{"type":"redacted_thinking","data":"x"}`, ""},
		{`{"type":"fallback","from":{"model":"a"},"to":{"model":"b"}}`, ""},
		{`{"type":"compaction","content":null}`, ""},
		{`{"type":"mcp_tool_result","content":"t"}`, ""},
		{`{"type":"bash_code_execution_tool_result","content":{"stdout":"","return_code":0}}`, ""},
		{`{"type":"acme","content":"t"}`, ""},
		{`{"type":"acme"}`, "acme"},
		{`{"type":"my secret prompt"}`, "invalid name"},
		{`{"type":"container_upload","file_id":"f"}`, "container_upload"},
		{`{"type":"mcp_tool_listing","mcp_server_name":"s","tools":[]}`, "mcp_tool_listing"},
		{`{"type":"advisor_tool_result","content":{"encrypted_content":"x"}}`, "advisor_tool_result"},
		{`{"type":"a_tool_result","content":{"encrypted_stdout":"x","return_code":0}}`, "a_tool_result"},
		{`{"type":"a_tool_result","content":{"title":"T","source":{"type":"base64","data":"JVBE"}}}`, "a_tool_result"},
		{`{"type":"a_tool_result","content":{"text":"T","url":"data:image/png;base64,iVBO"}}`, "a_tool_result"},
		{`{"type":"a_tool_result","content":` + strings.Repeat("[", 99) + `"t"` + strings.Repeat("]", 99) + "}", ""},
		{`{"type":"a_tool_result","content":[[],{},{"text":null,"results":[]}]}`, "a_tool_result"},
	} {
		block, dropped := c[0], c[1]
		if dropped != "" {
			dropped = "messages.1.content.0 (" + dropped + ")"
		}
		body := `{"model":"m","max_tokens":9,"messages":[` + saying("user", "u") + "," + assistantSays(block) + `]}`
		call := mustDecode(t, messagesOp, body, testEnv())
		if got := call.Dropped(); got != dropped {
			t.Errorf("%s: dropped %q, want %q", block, got, dropped)
		}
		if up := upstreamBody(t, call); strings.Contains(up, "base64") || strings.Contains(up, "secret") {
			t.Errorf("%s: %s", block, up)
		}
	}
}

// historyRows are what clients can make arbitrarily long in a history of another service.
var historyRows = []boundedRow{
	{
		name: "members of a hosted tool",
		input: listOf(aMessage+`,{"role":"assistant","content":[{"type":"mcp_tool_result","content":{`,
			numbered(`"a#":"words","text":"some words"`), `}}]}]}`), work: decoding(messagesOp),
	},
	{
		name: "results of hosted tools", input: listOf(aMessage+`,{"role":"assistant","content":[`,
			same(`{"type":"mcp_tool_result","tool_use_id":"m","content":[{"type":"text","text":"some words"}]}`), `]}]}`),
		work: decoding(messagesOp),
	},
	{
		name: "compactions", input: listOf(aMessage+`,{"role":"assistant","content":[`,
			numbered(`{"type":"compaction","content":"some words"},{"type":"tool_use","id":"c#","name":"f","input":{}}`),
			`]}]}`),
		work: decoding(messagesOp), maximum: maxElements/8 - 1000,
	},
	{
		name: "system text in a message", input: listOf(aMessage+`,{"role":"user","content":[`,
			same(`{"type":"mid_conv_system","content":[{"type":"text","text":"some words"}]}`), `]}]}`),
		work: decoding(messagesOp), maximum: maxElements/8 - 1000,
	},
	{
		name: "tools added and removed", input: listOf(aMessage+`,{"role":"system","content":[`,
			numbered(`{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"t#"}}},`+
				`{"type":"tool_removal","tool":{"name":"t#"}}`), `]}]}`),
		work: decoding(messagesOp), maximum: maxElements/8 - 1000,
	},
	{
		name: "definitions of one tool", input: listOf(aMessage+`,{"role":"system","content":[`,
			same(`{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"f","description":"d"}}}`),
			`]}]}`), work: decoding(messagesOp),
	},
	{
		name: "changes of tools in a compaction",
		input: listOf(aMessage+`,{"role":"assistant","content":[{"type":"compaction","content":"c","tool_changes":[`,
			numbered(`{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"t#"}}}`), `]}]}]}`),
		work: decoding(messagesOp),
	},
}
