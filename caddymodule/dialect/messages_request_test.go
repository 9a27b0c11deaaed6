package dialect

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// messagesOp and countOp are the operations of the messages dialect.
var (
	messagesOp = Operation{Kind: CreateMessage, Dialect: Messages}
	countOp    = Operation{Kind: CountTokens, Dialect: Messages}
)

// upstreamFields decodes a request and returns the members of the upstream's
// body without the model, which it checks.
func upstreamFields(t *testing.T, op Operation, body string) map[string]json.RawMessage {
	t.Helper()
	c, fault := Decode(op, []byte(body), testEnv())
	if fault != nil {
		t.Fatalf("%s\n%s", fault.Message, body)
	}
	up := upstreamBody(t, c)
	if err := strictJSON([]byte(up)); err != nil {
		t.Fatalf("%v in %s", err, up)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(up), &fields); err != nil {
		t.Fatal(err)
	}
	if string(fields["model"]) != `"up"` {
		t.Errorf("model %s", fields["model"])
	}
	delete(fields, "model")
	return fields
}

// strictJSON returns the problem of a JSON text, such as duplicate members.
func strictJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	return strictValue(d)
}

// strictValue is strictJSON for the next value.
func strictValue(d *json.Decoder) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		seen := map[any]bool{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return err
			}
			if seen[key] {
				return &json.SyntaxError{Offset: d.InputOffset()}
			}
			seen[key] = true
			if err := strictValue(d); err != nil {
				return err
			}
		}
		_, err = d.Token()
	case json.Delim('['):
		for d.More() {
			if err := strictValue(d); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	return err
}

// checkFields compares members of the upstream's body, byte for byte. "" stands for a missing member.
// Members that want does not have are not checked.
func checkFields(t *testing.T, got map[string]json.RawMessage, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if string(got[name]) != text {
			t.Errorf("%s\n got %s\nwant %s", name, got[name], text)
		}
	}
}

// messagesFieldCases are members of a messages body, and those of the upstream's. The
// message of the user is always the same, and max_tokens is 9 unless given.
var messagesFieldCases = []struct {
	name, members string
	want          map[string]string // "" is absent
}{
	{"max_tokens", `"max_tokens":77`, map[string]string{"max_tokens": `77`, "max_completion_tokens": ""}},
	{"no system", `"system":""`, map[string]string{"messages": `[{"role":"user","content":"u"}]`}},
	{"no system blocks", `"system":[]`, map[string]string{"messages": `[{"role":"user","content":"u"}]`}},
	{"system null", `"system":null`, map[string]string{"messages": `[{"role":"user","content":"u"}]`}},
	{
		"system string", `"system":"s"`,
		map[string]string{"messages": `[{"role":"system","content":"s"},{"role":"user","content":"u"}]`},
	},
	{
		"system blocks", `"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text",` +
			`"text":""},{"type":"text","text":"b"}]`,
		map[string]string{"messages": `[{"role":"system","content":"a\n\nb"},{"role":"user","content":"u"}]`},
	},
	{"not streamed", `"stream":false`, map[string]string{"stream": "", "stream_options": ""}},
	{"streamed", `"stream":true`, map[string]string{"stream": "true", "stream_options": `{"include_usage":true}`}},
	{
		"sampling, as it was written", `"temperature":0.10,"top_p":1e-1,"top_k":40`,
		map[string]string{"temperature": "0.10", "top_p": "1e-1", "top_k": "40"},
	},
	{"one stop sequence", `"stop_sequences":["END"]`, map[string]string{"stop": `["END"]`}},
	{"stop sequences of white space", `"stop_sequences":["\n\n"," ","a "]`, map[string]string{"stop": `["a "]`}},
	{"no stop sequences left", `"stop_sequences":["\n"]`, map[string]string{"stop": ""}},
	{"stop sequences empty", `"stop_sequences":[]`, map[string]string{"stop": ""}},
	{
		"format", `"output_config":{"format":{"type":"json_schema","schema":{"type":"object","b":1,"a":2}}}`,
		map[string]string{"response_format": `{"type":"json_schema","json_schema":{"name":"output",` +
			`"schema":{"type":"object","b":1,"a":2},"strict":true}}`},
	},
	{
		"format of the beta", `"output_format":{"type":"json_schema","schema":{}}`,
		map[string]string{"response_format": `{"type":"json_schema","json_schema":{"name":"output","schema":{},` +
			`"strict":true}}`, "output_format": ""},
	},
}

func TestMessagesFields(t *testing.T) {
	for _, c := range messagesFieldCases {
		t.Run(c.name, func(t *testing.T) {
			limit := `"max_tokens":9,`
			if strings.Contains(c.members, "max_tokens\"") {
				limit = ""
			}
			body := `{"model":"public","messages":[{"role":"user","content":"u"}],` + limit + c.members + `}`
			checkFields(t, upstreamFields(t, messagesOp, body), c.want)
		})
	}
}

// toolA and toolB are tools, chatA and chatB the upstream's tools for them.
const (
	toolA = `{"name":"a","description":"does \u0061","input_schema":{"type":"object",` +
		`"properties":{"x":{"type":"string"}},"required":["x"]}}`
	toolB = `{"type":"custom","name":"b","input_schema":{"type":"object","properties":{}}}`
	chatA = `{"type":"function","function":{"name":"a","description":"does \u0061","parameters":{"type":"object",` +
		`"properties":{"x":{"type":"string"}},"required":["x"]}}}`
	chatB = `{"type":"function","function":{"name":"b","parameters":{"type":"object","properties":{}}}}`
)

// messagesToolCases are tools and tool_choice, and those of the upstream's body.
var messagesToolCases = []struct {
	name, tools, choice string
	want                map[string]string
}{
	{
		"in their order", toolB + "," + toolA, "",
		map[string]string{"tools": "[" + chatB + "," + chatA + "]", "tool_choice": "", "parallel_tool_calls": ""},
	},
	{"none at all", "", `{"type":"auto"}`, map[string]string{"tools": "", "tool_choice": "", "parallel_tool_calls": ""}},
	{
		"none at all, with a word on parallel calls", "", `{"type":"auto","disable_parallel_tool_use":true}`,
		map[string]string{"tools": "", "tool_choice": "", "parallel_tool_calls": ""},
	},
	{
		"type null", `{"type":null,"name":"b","input_schema":{"type":"object","properties":{}}}`, "",
		map[string]string{"tools": "[" + chatB + "]"},
	},
	{
		"keys that are dropped",
		`{"type":"custom","name":"b","input_schema":{"type":"object","properties":{}},` +
			`"cache_control":{"type":"ephemeral"},"defer_loading":true,"input_examples":[],"eager_input_streaming":true,` +
			`"allowed_callers":["x"],"strict":false}`, "",
		map[string]string{"tools": "[" + chatB + "]"},
	},
	{
		"examples of inputs", `{"name":"b","description":"d","input_examples":[{"a": 1}],"input_schema":{"type":"object",` +
			`"properties":{}}}`, "",
		map[string]string{"tools": "[" + chatFunction("b", "d\n\nExamples of inputs: [{\"a\":1}]", emptyObject) + "]"},
	},
	{
		"strict", `{"name":"b","strict":true,"input_schema":{"type":"object","properties":{}}}`, "",
		map[string]string{"tools": `[{"type":"function","function":{"name":"b","parameters":{"type":"object",` +
			`"properties":{}},"strict":true}}]`},
	},
	{
		"schema without properties", `{"name":"b","input_schema":{"type":"object"}}`, "",
		map[string]string{"tools": "[" + chatB + "]"},
	},
	{"schema empty", `{"name":"b","input_schema":{}}`, "", map[string]string{"tools": "[" + chatB + "]"}},
	{"schema null", `{"name":"b","input_schema":null}`, "", map[string]string{"tools": "[" + chatB + "]"}},
	{"no schema", `{"name":"b"}`, "", map[string]string{"tools": "[" + chatB + "]"}},
	{
		"a schema keeps what it holds",
		`{"name":"b","input_schema":{"$schema":"s","properties":{"z":1,"a":2},"additionalProperties":false}}`, "",
		map[string]string{"tools": `[{"type":"function","function":{"name":"b","parameters":{"type":"object",` +
			`"$schema":"s","properties":{"z":1,"a":2},"additionalProperties":false}}}]`},
	},
	{
		"the first of a name", toolA + `,{"name":"a","input_schema":{"type":"object"}}`, "",
		map[string]string{"tools": "[" + chatA + "]"},
	},
	{
		"nothing but a hosted tool, forbidden", `{"type":"web_search_20250305","name":"web_search"}`, `{"type":"none"}`,
		map[string]string{"tools": "", "tool_choice": ""},
	},
	{"auto", toolA, `{"type":"auto"}`, map[string]string{"tool_choice": `"auto"`}},
	{"any", toolA, `{"type":"any"}`, map[string]string{"tool_choice": `"required"`}},
	{
		"a named tool", toolA + "," + toolB, `{"type":"tool","name":"b"}`,
		map[string]string{"tools": "[" + chatB + "]", "tool_choice": `"required"`},
	},
	{"none", toolA, `{"type":"none"}`, map[string]string{"tools": "", "tool_choice": "", "parallel_tool_calls": ""}},
	{"choice null", toolA, `null`, map[string]string{"tools": "[" + chatA + "]", "tool_choice": ""}},
	{
		"one call at a time", toolA, `{"type":"auto","disable_parallel_tool_use":true}`,
		map[string]string{"parallel_tool_calls": "false"},
	},
	{
		"several calls at a time", toolA, `{"type":"any","disable_parallel_tool_use":false}`,
		map[string]string{"parallel_tool_calls": "true", "tool_choice": `"required"`},
	},
}

func TestMessagesTools(t *testing.T) {
	for _, c := range messagesToolCases {
		t.Run(c.name, func(t *testing.T) {
			body := `{"model":"public","max_tokens":9,"messages":[{"role":"user","content":"u"}],"tools":[` + c.tools + `]`
			if c.choice != "" {
				body += `,"tool_choice":` + c.choice
			}
			checkFields(t, upstreamFields(t, messagesOp, body+"}"), c.want)
		})
	}
}

// Tools that clients run, and whose schema the API implies, become functions with that schema and the
// client's name.
func TestMessagesImpliedTools(t *testing.T) {
	for kind, keys := range map[string]string{
		"bash_20250124":        "command restart",
		"text_editor_20250728": "command path",
		"memory_20250818":      "command path",
		"computer_20251124":    "action coordinate start_coordinate text scroll_direction scroll_amount duration",
	} {
		fields := upstreamFields(t, messagesOp,
			`{"model":"public","max_tokens":9,"messages":[{"role":"user","content":"u"}],"tools":[{"type":"`+kind+
				`","name":"the_tool"}]}`)
		var tools []struct {
			Type     string
			Function struct {
				Name       string
				Parameters struct {
					Type       string
					Properties map[string]struct{ Type string }
				}
			}
		}
		if err := json.Unmarshal(fields["tools"], &tools); err != nil || len(tools) != 1 {
			t.Fatalf("%s: %s, %v", kind, fields["tools"], err)
		}
		f := tools[0].Function
		if tools[0].Type != "function" || f.Name != "the_tool" || f.Parameters.Type != "object" {
			t.Errorf("%s: %s", kind, fields["tools"])
		}
		for key := range strings.FieldsSeq(keys) {
			if f.Parameters.Properties[key].Type == "" {
				t.Errorf("%s has no %s: %s", kind, key, fields["tools"])
			}
		}
	}
}

func TestCountTokensNeedsNoLimit(t *testing.T) {
	fields := upstreamFields(t, countOp, `{"model":"public","messages":[{"role":"user","content":"foo"}],"tools":[]}`)
	checkFields(t, fields, map[string]string{
		"messages": `[{"role":"user","content":"foo"}]`, "tools": "",
		"max_tokens": "",
	})
}
