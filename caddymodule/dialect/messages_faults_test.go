package dialect

import (
	"strings"
	"testing"
)

// messagesFaults are bodies, and the messages of their errors.
var messagesFaults = []struct{ name, body, message string }{
	{"no model", `{"max_tokens":1,"messages":[{"role":"user","content":"u"}]}`, "model: Field required"},
	{"model of another type", `{"model":7,"max_tokens":1,"messages":[{"role":"user","content":"u"}]}`, "model: "},
	{"a message of another type", `{"model":"m","max_tokens":1,"messages":["u"]}`, "messages.0: "},
	{"another role", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"u"},{"role":"tool",` +
		`"content":"u"}]}`, "messages.1.role: "},
	{"no role", `{"model":"m","max_tokens":1,"messages":[{"content":"u"}]}`, "messages.0.role: "},
	{
		"content of another type", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":7}]}`,
		"messages.0.content: ",
	},
	{
		"a block of another type", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":["u"]}]}`,
		"messages.0.content.0: ",
	},
	{"max_tokens zero", `{"model":"m","max_tokens":0,"messages":[{"role":"user","content":"u"}]}`, "max_tokens: "},
	{
		"stream of another type", `{"model":"m","max_tokens":1,"stream":1,"messages":[{"role":"user","content":"u"}]}`,
		"stream: ",
	},
	{
		"a stop sequence of another type",
		`{"model":"m","max_tokens":1,"stop_sequences":["a",1],"messages":[{"role":"user","content":"u"}]}`,
		"stop_sequences.1: ",
	},
	{
		"a system block that is no text",
		`{"model":"m","max_tokens":1,"system":[{"type":"text","text":"s"},{"type":"image"}],"messages":[{"role":"user",` +
			`"content":"u"}]}`, "system.1.type: ",
	},
	{
		"a system text of another type",
		`{"model":"m","max_tokens":1,"system":[{"type":"text","text":7}],"messages":[{"role":"user","content":"u"}]}`,
		"system.0.text: Field required",
	},
	{
		"a block without a type", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"text":"u"}]}]}`,
		"messages.0.content.0.type: Field required",
	},
	{
		"a block's type of another type",
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":7}]}]}`,
		"messages.0.content.0.type: Input should be a string, not a number",
	},
	{
		"an assistant's text of another type",
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"text","text":null}]}]}`,
		"messages.0.content.0.text: Field required",
	},
	{
		"a call's input of another type",
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f",` +
			`"input":"{}"}]}]}`, "messages.0.content.0.input: Input should be an object, not a string",
	},
	{"mcp_servers", `{"model":"m","max_tokens":1,"mcp_servers":[{"name":"x"}],` +
		`"messages":[{"role":"user","content":"u"}]}`, "mcp_servers: not supported by this deployment"},
	{
		"thread", `{"model":"m","max_tokens":1,"thread":{"type":"create"},"messages":[{"role":"user","content":"u"}]}`,
		"thread: ",
	},
	{
		"a named tool that is not there",
		`{"model":"m","max_tokens":1,"tools":[{"name":"a"}],"tool_choice":{"type":"tool","name":"b"},` +
			`"messages":[{"role":"user","content":"u"}]}`, "tool_choice.name: b is not available on this deployment",
	},
	{
		"nothing but a hosted tool",
		`{"model":"m","max_tokens":1,"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":8}],` +
			`"messages":[{"role":"user","content":"u"}]}`,
		"tools.0.type: Tools of type 'web_search_20250305' are not available on this deployment, and the request has no " +
			"other tool. Remove it, or send a tool that the client runs.",
	},
	{
		"nothing but hosted tools", `{"model":"m","max_tokens":1,"tools":[{"type":"advisor","name":"a"},` +
			`{"type":"mcp_toolset","name":"c"}],"tool_choice":{"type":"any"},"messages":[{"role":"user","content":"u"}]}`,
		"tools.0.type: Tools of type 'advisor'",
	},
	{
		"a named tool that is hosted",
		`{"model":"m","max_tokens":1,"tools":[{"name":"a"},{"type":"web_search_20250305","name":"web_search"}],` +
			`"tool_choice":{"type":"tool","name":"web_search"},"messages":[{"role":"user","content":"u"}]}`,
		"tool_choice.name: web_search is not available on this deployment",
	},
	{"any of no tools", `{"model":"m","max_tokens":1,"tools":[],"tool_choice":{"type":"any"},` +
		`"messages":[{"role":"user","content":"u"}]}`, "tool_choice: "},
	{"another tool_choice", `{"model":"m","max_tokens":1,"tools":[{"name":"a"}],"tool_choice":{"type":"some"},` +
		`"messages":[{"role":"user","content":"u"}]}`, "tool_choice.type: "},
	{"a tool without a name", `{"model":"m","max_tokens":1,"tools":[{"input_schema":{}}],"messages":[{"role":"user",` +
		`"content":"u"}]}`, "tools.0.name: "},
	{"an image file", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image",` +
		`"source":{"type":"file","file_id":"f"}}]}]}`, "messages.0.content.0.source.type: file is not supported"},
	{
		"an image file in a result",
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c",` +
			`"content":[{"type":"image","source":{"type":"file"}}]}]}]}`,
		"messages.0.content.0.content.0.source.type: file is not supported",
	},
	{
		"an image without a source",
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image"}]}]}`,
		"messages.0.content.0.source: ",
	},
	{
		"a document without a source",
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"document"}]}]}`,
		"messages.0.content.0.source: ",
	},
	{
		"a document that is not base64",
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64",` +
			`"media_type":"text/plain","data":"?"}}]}]}`, "messages.0.content.0.source.data: ",
	},
	{
		"an image of the assistant",
		`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"image"}]}]}`,
		"messages.0.content.0.type: ",
	},
	{
		"tool_choice of another type",
		`{"model":"m","max_tokens":1,"tools":[{"name":"a"}],"tool_choice":"auto",` +
			`"messages":[{"role":"user","content":"u"}]}`, "tool_choice: ",
	},
	{"a call without an id", `{"model":"m","max_tokens":1,"messages":[{"role":"assistant",` +
		`"content":[{"type":"tool_use","name":"n","input":{}}]}]}`, "messages.0.content.0.id: "},
	{"a call without a name", `{"model":"m","max_tokens":1,"messages":[{"role":"assistant",` +
		`"content":[{"type":"tool_use","id":"c","input":{}}]}]}`, "messages.0.content.0.name: "},
	{"a result without an id", `{"model":"m","max_tokens":1,"messages":[{"role":"user",` +
		`"content":[{"type":"tool_result"}]}]}`, "messages.0.content.0.tool_use_id: "},
	{
		"text without text", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text"}]}]}`,
		"messages.0.content.0.text: ",
	},
	{"not an object", `[]`, "The request body must be a JSON object"},
	{"empty", ``, "The request body is empty"},
	{"broken", `{"model":"m"`, "The request body is not valid JSON"},
}

func TestMessagesFaults(t *testing.T) {
	for _, c := range messagesFaults {
		t.Run(c.name, func(t *testing.T) {
			_, fault := Decode(messagesOp, []byte(c.body), testEnv())
			if fault == nil {
				t.Fatal("no fault")
			}
			if fault.HTTPStatus(Messages) != 400 || !strings.HasPrefix(fault.Message, c.message) {
				t.Errorf("%d %s", fault.HTTPStatus(Messages), fault.Message)
			}
			if strings.HasSuffix(c.message, ": ") && fault.Message == c.message {
				t.Error("nothing behind the path")
			}
		})
	}
}

// The error for a PDF document names its type. The error for a thread says how to do without.
func TestMessagesFaultsInFull(t *testing.T) {
	for source, want := range map[string]string{
		`{"type":"base64","media_type":"application/pdf","data":"JVBE"}`: "document blocks of type application/pdf are not " +
			"supported by this deployment",
		`{"type":"url","url":"https://example.com/a.pdf"}`: "are not supported by this deployment",
		`{"type":"file","file_id":"f"}`:                    "are not supported by this deployment",
	} {
		_, fault := Decode(messagesOp,
			[]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":`+source+
				`}]}]}`), testEnv())
		if fault == nil || !strings.Contains(fault.Message, want) {
			t.Errorf("%s: %v", source, fault)
		}
	}
	_, fault := Decode(messagesOp,
		[]byte(`{"model":"m","max_tokens":1,"thread":{"type":"create"},"messages":[{"role":"user","content":"u"}]}`),
		testEnv())
	body := string(fault.Body(Messages, "req_1"))
	if !strings.Contains(body, `"details":{"error_code":"thread_unsupported_request","unsupported":["model"]}`) ||
		!strings.Contains(body, `"request_id":"req_1"`) {
		t.Error(body)
	}
}
