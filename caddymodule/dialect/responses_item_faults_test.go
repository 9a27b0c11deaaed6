package dialect

import (
	"strings"
	"testing"
)

// itemFaults are the items of an input, with the param and the message of the error.
var itemFaults = []struct{ name, in, param, message string }{
	{"no object", `7`, "input[0]", ""},
	{"no role", `{"type":"message","content":"u"}`, "input[0].role", ""},
	{"another role", itemU + `,{"type":"message","role":"tool","content":"u"}`, "input[1].role", ""},
	{"content of another type", `{"role":"user","content":7}`, "input[0].content", ""},
	{"an unknown part", itemU + `,{"role":"user","content":[{"type":"video"}]}`, "input[1].content[0].type", "video"},
	{"a part without a type", `{"role":"user","content":[{"text":"u"}]}`, "input[0].content[0].type", ""},
	{"text of another type", `{"role":"user","content":[{"type":"input_text","text":7}]}`, "input[0].content[0].text", ""},
	{
		"an image of the assistant", `{"role":"assistant","content":[{"type":"output_text","text":"a"},` + itemImage + `]}`,
		"input[0].content[1].type", "assistant",
	},
	{"an image of the system", `{"role":"system","content":[` + itemImage + `]}`, "input[0].content[0].type", "system"},
	{
		"a file that is no data URL", `{"role":"user","content":[{"type":"input_file","file_data":"YQ=="}]}`,
		"input[0].content[0].file_data", "data URL",
	},
	{
		"an image file", `{"role":"user","content":[{"type":"input_image","file_id":"file_1"}]}`,
		"input[0].content[0].file_id", "",
	},
	{
		"a file id", `{"role":"user","content":[{"type":"input_file","file_id":"file_1"}]}`,
		"input[0].content[0].file_id", "",
	},
	{
		"a file's address", `{"role":"user","content":[{"type":"input_file","file_url":"https://example.com"}]}`,
		"input[0].content[0].file_url", "",
	},
	{"a PDF", `{"role":"user","content":[{"type":"input_file","filename":"a.pdf",` +
		`"file_data":"data:application/pdf;base64,JVBE"}]}`, "input[0].content[0].file_data", "application/pdf"},
	{
		"a file that is not base64",
		`{"role":"user","content":[{"type":"input_file","file_data":"data:text/plain;base64,?"}]}`,
		"input[0].content[0].file_data", "",
	},
	{
		"a call's arguments of another type", `{"type":"function_call","call_id":"c","name":"f","arguments":[7]}`,
		"input[0].arguments", "a string or an object",
	},
	{
		"an action of another type", `{"type":"local_shell_call","call_id":"c","action":"ls"}`, "input[0].action",
		"an object",
	},
	{"a call without an id", `{"type":"function_call","name":"f","arguments":"{}"}`, "input[0].call_id", ""},
	{"a call without a name", `{"type":"function_call","call_id":"a","arguments":"{}"}`, "input[0].name", ""},
	{"a result without an id", `{"type":"function_call_output","output":"r"}`, "input[0].call_id", ""},
	{
		"an unknown part of a result", itemCallA + "," + itemOutput("a", `[{"type":"video"}]`),
		"input[1].output[0].type", "",
	},
	{
		"a reference to what is not kept", `{"type":"item_reference","id":"msg_9"}`, "input[0].id",
		"Item with id 'msg_9' not found.",
	},
}

func TestResponsesItemFaults(t *testing.T) {
	for _, c := range itemFaults {
		t.Run(c.name, func(t *testing.T) {
			checkFault(t, `{"model":"public","input":[`+c.in+`]}`, c.param, "", c.message)
		})
	}
}

// checkFault checks that a body in the responses dialect is refused with an error about param. message
// is a part of its message.
func checkFault(t *testing.T, body, param, code, message string) {
	t.Helper()
	_, fault := Decode(responsesOp, []byte(body), testEnv())
	if fault == nil {
		t.Fatal("no fault")
	}
	if fault.HTTPStatus(Responses) != 400 || fault.Param != param || !strings.Contains(fault.Message, message) ||
		code != "" && fault.Code != code {
		t.Errorf("%d %s %s %s", fault.HTTPStatus(Responses), fault.Param, fault.Code, fault.Message)
	}
	if fault.Message == "" {
		t.Error("no message")
	}
}

// TestDroppedItems checks that dropped items are named with their types, unless a type could contain
// other data of the client.
func TestDroppedItems(t *testing.T) {
	body := `{"model":"m","input":[{"role":"user","content":"u"},{"type":"web_search_call"},{"type":"vendor:thing_2"},` +
		`{"type":"my secret prompt"},` +
		`{"type":"additional_tools","tools":[]},{"type":"reasoning","summary":[]}]}`
	c, err := Decode(Operation{Kind: CreateResponse, Dialect: Responses}, []byte(body), testEnv())
	if err != nil {
		t.Fatal(err)
	}
	want := "input[1] (web_search_call), input[2] (vendor:thing_2), input[3] (invalid name)"
	if got := c.Dropped(); got != want {
		t.Errorf("dropped %q, want %q", got, want)
	}
}
