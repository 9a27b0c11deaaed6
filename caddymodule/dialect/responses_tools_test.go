package dialect

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

// These are tools as clients of the responses dialect send them, and those of the upstream.
const (
	functionA = `{"type":"function","name":"a","description":"does \u0061","parameters":{"type":"object",` +
		`"properties":{"x":{"type":"string"}},"required":["x"]},"strict":false}`
	functionB   = `{"type":"function","name":"b","parameters":{"type":"object","properties":{}}}`
	freeText    = `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}`
	emptyObject = `{"type":"object","properties":{}}`
)

// chatFunction returns a tool of the chat dialect. description may be "".
func chatFunction(name, description, parameters string) string {
	if description != "" {
		description = `,"description":` + quoted(description)
	}
	return `{"type":"function","function":{"name":` + quoted(name) + description + `,"parameters":` + parameters + `}}`
}

// responsesToolCases are tools and tool_choice, and those of the upstream's body.
var responsesToolCases = []struct {
	name, tools, choice string
	want                map[string]string
}{
	{
		"in their order", functionB + "," + functionA, "",
		map[string]string{"tools": "[" + chatB + "," + chatA + "]", "tool_choice": ""},
	},
	{"none", "", `"auto"`, map[string]string{"tools": "", "tool_choice": "", "parallel_tool_calls": ""}},
	{
		"strict", `{"type":"function","name":"b","parameters":` + emptyObject + `,"strict":true}`, "",
		map[string]string{"tools": `[{"type":"function","function":{"name":"b","parameters":` + emptyObject +
			`,"strict":true}}]`},
	},
	{"no parameters", `{"type":"function","name":"b"}`, "", map[string]string{"tools": "[" + chatB + "]"}},
	{
		"the first of a name", functionA + `,{"type":"function","name":"a"}`, "",
		map[string]string{"tools": "[" + chatA + "]"},
	},
	{
		"a namespace", `{"type":"namespace","name":"ns","description":"d","tools":[` + functionB + `]}`, "",
		map[string]string{
			"tools":    "[" + chatFunction("ns__b", "", emptyObject) + "]",
			"messages": "[" + saying("system", "Tools of ns: d") + "," + saying("user", "u") + "]",
		},
	},
	{
		"a namespace without new tools", `{"type":"namespace","name":"ns","tools":[` + functionB + `]},` +
			`{"type":"namespace","name":"ns","description":"d","tools":[` + functionB + `]}`, "",
		map[string]string{"messages": "[" + saying("user", "u") + "]"},
	},
	{
		"an empty namespace", `{"type":"namespace","name":"ns","tools":[]},` + functionB, "",
		map[string]string{"tools": "[" + chatB + "]"},
	},
	{
		"a custom tool", `{"type":"custom","name":"c"}`, "",
		map[string]string{"tools": "[" + chatFunction("c", "", freeText) + "]"},
	},
	{
		"a custom tool of free text", `{"type":"custom","name":"c","description":"D.","format":{"type":"text"}}`, "",
		map[string]string{"tools": "[" + chatFunction("c", "D.", freeText) + "]"},
	},
	{
		"a custom tool with a grammar",
		`{"type":"custom","name":"c","description":"D.","format":{"type":"grammar","syntax":"lark","definition":"start: ` +
			`\"x\""}}`, "",
		map[string]string{"tools": "[" +
			chatFunction("c", "D.\n\nThe input must follow this lark grammar:\nstart: \"x\"", freeText) + "]"},
	},
	{
		"a custom tool in a namespace", `{"type":"namespace","name":"ns","tools":[{"type":"custom","name":"c"}]}`, "",
		map[string]string{"tools": "[" + chatFunction("ns__c", "", freeText) + "]"},
	},
	{
		"nothing but a hosted tool, forbidden", `{"type":"web_search"}`, `"none"`,
		map[string]string{"tools": "", "tool_choice": ""},
	},
	{"auto", functionA, `"auto"`, map[string]string{"tool_choice": `"auto"`}},
	{"required", functionA, `"required"`, map[string]string{"tool_choice": `"required"`}},
	{"none of them", functionA, `"none"`, map[string]string{"tools": "", "tool_choice": ""}},
	{"choice null", functionA, `null`, map[string]string{"tool_choice": ""}},
	{
		"a function", functionA + "," + functionB, `{"type":"function","name":"b"}`,
		map[string]string{"tools": "[" + chatB + "]", "tool_choice": `"required"`},
	},
	{
		"a custom tool, chosen", functionA + `,{"type":"custom","name":"c"}`, `{"type":"custom","name":"c"}`,
		map[string]string{"tools": "[" + chatFunction("c", "", freeText) + "]", "tool_choice": `"required"`},
	},
	{
		"a tool of a namespace, chosen", functionB + `,{"type":"namespace","name":"ns","tools":[` + functionB + `]}`,
		`{"type":"function","name":"b","namespace":"ns"}`,
		map[string]string{"tools": "[" + chatFunction("ns__b", "", emptyObject) + "]", "tool_choice": `"required"`},
	},
	{
		"allowed tools", functionA + "," + functionB + `,{"type":"web_search"}`,
		`{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"b"},{"type":"web_search"}]}`,
		map[string]string{"tools": "[" + chatB + "]", "tool_choice": `"required"`},
	},
	{
		"an allowed namespace", functionA + `,{"type":"namespace","name":"ns","tools":[` + functionB + `]}`,
		`{"type":"allowed_tools","mode":"auto","tools":[{"type":"namespace","name":"ns"}]}`,
		map[string]string{"tools": "[" + chatFunction("ns__b", "", emptyObject) + "]", "tool_choice": `"auto"`},
	},
	{
		"allowed namespaces", functionA + `,{"type":"namespace","name":"ns","tools":[` + functionB +
			`,{"type":"namespace","name":"x","tools":[` + functionA + `]},{"type":"shell"}]}`,
		`{"type":"allowed_tools","tools":[{"type":"namespace","name":"ns"}]}`,
		map[string]string{"tools": "[" + chatFunction("ns__b", "", emptyObject) + "]", "tool_choice": `"auto"`},
	},
	{
		"a function as the chat dialect has it", `{"type":"function","function":{"name":"b"}}`,
		`{"type":"function","function":{"name":"b"}}`,
		map[string]string{"tools": "[" + chatB + "]", "tool_choice": `"required"`},
	},
	{
		"allowed tools, of which none need be called", functionA + "," + functionB,
		`{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"a"}]}`,
		map[string]string{"tools": "[" + chatA + "]", "tool_choice": `"auto"`},
	},
}

func TestResponsesTools(t *testing.T) {
	for _, c := range responsesToolCases {
		t.Run(c.name, func(t *testing.T) {
			body := `{"model":"public","input":"u","tools":[` + c.tools + `]`
			if c.choice != "" {
				body += `,"tool_choice":` + c.choice
			}
			checkFields(t, upstreamFields(t, responsesOp, body+"}"), c.want)
		})
	}
}

func TestResponsesParallelCalls(t *testing.T) {
	for _, c := range []struct{ members, want string }{
		{`"tools":[` + functionA + `]`, ""},
		{`"tools":[` + functionA + `],"parallel_tool_calls":true`, "true"},
		{`"tools":[` + functionA + `],"parallel_tool_calls":false`, "false"},
		{`"tools":[],"parallel_tool_calls":false`, ""},
		{`"tools":[` + functionA + `],"tool_choice":"none","parallel_tool_calls":false`, ""},
	} {
		fields := upstreamFields(t, responsesOp, `{"model":"public","input":"u",`+c.members+`}`)
		if got := string(fields["parallel_tool_calls"]); got != c.want {
			t.Errorf("%s: %s", c.members, got)
		}
	}
}

// Tools of builtin types have the keys that the answer's encoder reads.
func TestResponsesBuiltinTools(t *testing.T) {
	for kind, keys := range map[string]string{
		"local_shell": "command workdir timeout_ms env",
		"shell":       "commands",
		"apply_patch": "type path diff",
	} {
		fields := upstreamFields(t, responsesOp,
			`{"model":"public","input":"u","tools":[{"type":"`+kind+`"}],"tool_choice":{"type":"`+kind+`"}}`)
		var tools []struct {
			Function struct {
				Name       string
				Parameters struct {
					Properties map[string]struct{ Type string }
				}
			}
		}
		if err := json.Unmarshal(fields["tools"], &tools); err != nil || len(tools) != 1 || tools[0].Function.Name != kind {
			t.Fatalf("%s: %v %s", kind, err, fields["tools"])
		}
		for key := range strings.FieldsSeq(keys) {
			if tools[0].Function.Parameters.Properties[key].Type == "" {
				t.Errorf("%s: no %s in %s", kind, key, fields["tools"])
			}
		}
	}
}

// Tools whose names are too long, or taken, have other names upstream: unique ones of at most 64 bytes,
// which are the same in each request.
func TestFlatNames(t *testing.T) {
	long := strings.Repeat("é", 40)
	tools := `{"type":"namespace","name":"mcp__docs__","tools":[{"type":"function","name":"search"},{"type":"custom",` +
		`"name":"` + long + `"},{"type":"custom","name":"` + long + `x"}]},` +
		`{"type":"namespace","name":"mcp__docs","tools":[{"type":"function","name":"search"}]},{"type":"function",` +
		`"name":"mcp__docs__search"}`
	names := func(input string) (list []string) {
		fields := upstreamFields(t, responsesOp, `{"model":"public","input":[`+input+`],"tools":[`+tools+`]}`)
		var decoded []struct{ Function struct{ Name string } }
		if err := json.Unmarshal(fields["tools"], &decoded); err != nil {
			t.Fatal(err)
		}
		for _, tool := range decoded {
			list = append(list, tool.Function.Name)
		}
		return list
	}
	first, seen := names(itemU), map[string]bool{}
	for i, name := range first {
		if len(name) > 64 || seen[name] || strings.Contains(name, "\uFFFD") {
			t.Errorf("tool %d: %q", i, name)
		}
		seen[name] = true
	}
	if len(first) != 5 || first[4] != "mcp__docs__search" {
		t.Errorf("%q", first)
	}
	if second := names(itemU + `,{"type":"function_call","call_id":"c","name":"gone","namespace":"x",` +
		`"arguments":"{}"}`); strings.Join(second, " ") != strings.Join(first, " ") {
		t.Errorf("%q and %q", first, second)
	}

	history := itemU + `,{"type":"function_call","call_id":"a","name":"search","namespace":"mcp__docs__",` +
		`"arguments":"{}"},{"type":"function_call","call_id":"b","name":"search","namespace":"mcp__docs","arguments":"{}"},` +
		`{"type":"function_call","call_id":"c","name":"mcp__docs__search","arguments":"{}"},{"type":"custom_tool_call",` +
		`"call_id":"d","name":"` + long + `","namespace":"mcp__docs__","input":"x"}`
	fields := upstreamFields(t, responsesOp, `{"model":"public","input":[`+history+`],"tools":[`+tools+`]}`)
	want := chatCall("", "", [3]string{"a", first[0], "{}"}, [3]string{"b", first[3], "{}"},
		[3]string{"c", first[4], "{}"}, [3]string{"d", first[1], `{"input":"x"}`})
	checkFields(t, fields, map[string]string{"messages": "[" + chatU + "," + want + "]"})
}

// Calls have the tool names of the client, even if two tools would have the same name upstream.
func TestNamesOfCalls(t *testing.T) {
	c := decodeCase(t, Responses,
		responsesBody(`"input":"u","tools":[{"type":"function","name":"mcp__docs__search"},{"type":"namespace",`+
			`"name":"mcp__docs__","tools":[{"type":"function","name":"search"},{"type":"function","name":"fetch"}]},`+
			`{"type":"custom","name":"apply_patch"}]`))
	var body struct {
		Tools []struct{ Function struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(upstreamBody(t, c)), &body); err != nil || len(body.Tools) != 4 {
		t.Fatalf("%v %+v", err, body)
	}
	var upstream strings.Builder
	for i, tool := range body.Tools {
		upstream.WriteString(toolChunk(call(i, "c"+strconv.Itoa(i), tool.Function.Name, `{"input":"x"}`)))
	}
	upstream.WriteString(finishChunk("tool_calls") + upstreamDone)
	got := responsesDigest(t, translate(c.NewStream(), upstream.String(), nil))
	const want = `function_call:c0 mcp__docs__search {"input":"x"} function_call:c1 mcp__docs__/search {"input":"x"} ` +
		`function_call:c2 mcp__docs__/fetch {"input":"x"} custom_tool_call:c3 apply_patch x | completed`
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// A client may use the upstream's name for a tool in a namespace. The model does not see two
// names of it.
func TestFlatNameInHistory(t *testing.T) {
	c := decodeCase(t, Responses,
		`{"model":"public","input":[`+itemU+
			`,{"type":"function_call","call_id":"a","name":"ns__b","arguments":"{}"}],"tools":[{"type":"namespace",`+
			`"name":"ns","tools":[`+functionB+`]}],"tool_choice":{"type":"function","name":"ns__b"}}`)
	body := upstreamBody(t, c)
	if strings.Count(body, `"ns__b"`) != 2 || strings.Contains(body, "ns__b_") {
		t.Errorf("%s", body)
	}
}

// A tool of the history that is no longer offered keeps its name.
func TestToolOfTheHistory(t *testing.T) {
	c := decodeCase(t, Responses,
		responsesBody(`"input":[`+itemU+
			`,{"type":"custom_tool_call","call_id":"a","name":"b","namespace":"ns","input":"x"}]`))
	got := responsesDigest(t, translate(c.NewStream(),
		toolChunk(call(0, "c", "ns__b", `{"input":"y"}`))+finishChunk("tool_calls")+upstreamDone, nil))
	if want := "custom_tool_call:c ns/b y | completed"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// Tools in the input follow the others, each once.
func TestToolsOfTheInput(t *testing.T) {
	input := `{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"a",` +
		`"description":"another"},{"type":"namespace","name":"ns","tools":[{"type":"custom","name":"c"}]},` +
		`{"type":"web_search"},7]},` + itemU +
		`,{"type":"tool_search_call","call_id":"t"},{"type":"tool_search_output","call_id":"t","tools":[` + functionB + `,` +
		functionB + `]},{"type":"tool_search_output","tools":null}`
	fields := upstreamFields(t, responsesOp,
		`{"model":"public","input":[`+input+`],"tools":[`+functionA+`],"tool_choice":"auto"}`)
	checkFields(t, fields, map[string]string{
		"messages":    "[" + chatU + "]",
		"tools":       "[" + chatA + "," + chatFunction("ns__c", "", freeText) + "," + chatB + "]",
		"tool_choice": `"auto"`,
	})
}

// The response repeats the tools. Functions have all their keys.
func TestToolsAreEchoed(t *testing.T) {
	tools := `{"type":"function","name":"a"},{"type":"custom","name":"c","format":{"type":"text"}},{"type":"web_search"}`
	told, _, fault := decodeCase(t, Responses,
		`{"model":"public","input":"u","tools":[`+tools+
			`],"tool_choice":"auto"}`).Answer([]byte(wholeBody(`"content":"a"`, `"stop"`, "")))
	if fault != nil {
		t.Fatal(fault.Message)
	}
	var response map[string]json.RawMessage
	if err := json.Unmarshal(told, &response); err != nil {
		t.Fatal(err)
	}
	checkFields(t, response, map[string]string{
		"tools": `[{"type":"function","name":"a","description":null,"parameters":null,"strict":null},` +
			`{"type":"custom","name":"c","format":{"type":"text"}},{"type":"web_search"}]`,
		"tool_choice": `"auto"`,
	})
}

// A request that calls no tool may have only hosted tools, because clients count tools one by one.
func TestHostedToolsAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op   Operation
		body string
	}{
		{countOp, `{"model":"m","messages":[{"role":"user","content":"u"}],"tools":[{"type":"web_search_20250305",` +
			`"name":"web_search"}]}`},
		{Operation{Kind: CountInputTokens, Dialect: Responses}, `{"model":"m","input":"u","tools":[{"type":"web_search"}]}`},
		{responsesOp, `{"model":"m","input":[{"role":"user","content":"u"},{"type":"compaction_trigger"}],` +
			`"tools":[{"type":"web_search"}]}`},
		{responsesOp, `{"model":"m","input":"u","tools":[{"type":"function","name":"a"},{"type":"web_search"}],` +
			`"tool_choice":{"type":"allowed_tools","mode":"none","tools":[{"type":"web_search"}]}}`},
		{chatOp, `{"model":"m","messages":[],"tools":[{"type":"web_search"}],"web_search_options":{}}`},
	} {
		if _, fault := Decode(c.op, []byte(c.body), testEnv()); fault != nil {
			t.Errorf("%s\n%s", fault.Message, c.body)
		}
	}
}
