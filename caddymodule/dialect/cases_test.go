package dialect

import (
	"encoding/json"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// This file has the cases about requests of a collection of other gateways' bugs, B1 to B25. The
// cases about answers are in answerCases.

// testEnv returns an environment with ids that are numbered.
func testEnv() *Env {
	n := 0
	return &Env{
		Now:          func() time.Time { return time.Unix(1700000000, 0) },
		NewID:        func(prefix string) string { n++; return prefix + strconv.Itoa(n) },
		RequestID:    "req_1",
		SignatureKey: []byte("a key for tests"),
		Sealer:       testSealer,
	}
}

// testSealer is the sealer of all requests of tests.
var testSealer = func() *Sealer {
	s, err := NewSealer([]byte("a key for tests"))
	if err != nil {
		panic(err)
	}
	return s
}()

// sealed returns a text as the gateway seals it for the account of testEnv.
func sealed(mark, text string) string {
	return string((&Env{Sealer: testSealer}).seal(nil, mark, []byte(text)))
}

// decodeCase reads a request in a dialect.
func decodeCase(t *testing.T, d Dialect, body string) Call {
	t.Helper()
	kind := map[Dialect]OperationKind{Chat: ChatCompletions, Messages: CreateMessage, Responses: CreateResponse}[d]
	c, err := Decode(Operation{Kind: kind, Dialect: d}, []byte(body), testEnv())
	if err != nil {
		t.Fatalf("%s\n%s", err.Message, body)
	}
	return c
}

// upstreamBody returns the upstream's body for a request.
func upstreamBody(t *testing.T, c Call) string {
	t.Helper()
	b, err := io.ReadAll(c.Body("up"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sameJSON compares JSON texts, regardless of white space and the order of keys.
func sameJSON(t *testing.T, what string, got any, want string) {
	t.Helper()
	var w any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%s: %v", want, err)
	}
	if !reflect.DeepEqual(got, w) {
		text, _ := json.Marshal(got)
		t.Errorf("%s\n got %s\nwant %s", what, text, want)
	}
}

// messagesBody is a request in the messages dialect with further members.
func messagesBody(members string) string {
	return `{"model":"public","max_tokens":10,"stream":true,` + members + `}`
}

// responsesBody is a request in the responses dialect with further members.
func responsesBody(members string) string {
	return `{"model":"public","stream":true,` + members + `}`
}

const (
	caseImage   = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}`
	billingText = `x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch=`
)

func TestRequestCases(t *testing.T) {
	for _, c := range []struct {
		name     string
		dialect  Dialect
		body     string
		messages string
		tools    string // "" is none
	}{
		{
			"B5 thinking comes back", Messages,
			messagesBody(`"messages":[{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"thinking",` +
				`"thinking":"hm","signature":"gw1.x"},{"type":"text","text":"Hi"}]},{"role":"user","content":"go"}]`),
			`[{"role":"user","content":"u"},{"role":"assistant","content":"Hi","reasoning_content":"hm","reasoning":"hm"},` +
				`{"role":"user","content":"go"}]`, "",
		},
		{
			"B7 parallel calls", Responses,
			responsesBody(`"input":[{"role":"user","content":"u"},{"type":"function_call","call_id":"c1","name":"f",` +
				`"arguments":"{}"},{"type":"function_call","call_id":"c2","name":"g","arguments":"{\"a\":1}"},` +
				`{"type":"function_call_output","call_id":"c1","output":"1"},{"type":"function_call_output","call_id":"c2",` +
				`"output":"2"}]`),
			`[{"role":"user","content":"u"},{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",` +
				`"function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g",` +
				`"arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"1"},{"role":"tool",` +
				`"tool_call_id":"c2","content":"2"}]`, "",
		},
		{
			"B7 a user between calls", Responses,
			responsesBody(`"input":[{"role":"user","content":"u"},{"type":"function_call","call_id":"c1","name":"f",` +
				`"arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"1"},{"role":"user","content":"v"},` +
				`{"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},{"type":"function_call_output",` +
				`"call_id":"c2","output":"2"}]`),
			`[{"role":"user","content":"u"},{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",` +
				`"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"1"},{"role":"user",` +
				`"content":"v"},{"role":"assistant","content":"","tool_calls":[{"id":"c2","type":"function",` +
				`"function":{"name":"g","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c2","content":"2"}]`, "",
		},
		{
			"B8 text between call and result", Responses,
			responsesBody(`"input":[{"role":"user","content":"u"},{"type":"function_call","call_id":"c1","name":"f",` +
				`"arguments":"{}"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Checking"}]},` +
				`{"type":"function_call_output","call_id":"c1","output":"1"}]`),
			`[{"role":"user","content":"u"},{"role":"assistant","content":"Checking","tool_calls":[{"id":"c1",` +
				`"type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"1"}]`,
			"",
		},
		{
			"B9 image in a result", Messages,
			messagesBody(`"messages":[{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"tool_use",` +
				`"id":"c1","name":"f","input":{}},{"type":"tool_use","id":"c2","name":"f","input":{}}]},{"role":"user",` +
				`"content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"ok"},` + caseImage +
				`]},{"type":"tool_result","tool_use_id":"c2","content":"2"},{"type":"text","text":"go on"}]}]`),
			`[{"role":"user","content":"u"},{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",` +
				`"function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"f",` +
				`"arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"ok\n[image]"},{"role":"tool",` +
				`"tool_call_id":"c2","content":"2"},{"role":"user","content":[{"type":"image_url",` +
				`"image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},{"type":"text","text":"go on"}]}]`, "",
		},
		{
			"B11 system in the middle", Messages,
			messagesBody(`"system":"S","messages":[{"role":"user","content":"u1"},{"role":"system","content":"Available ` +
				`agents"},{"role":"assistant","content":"a1"},{"role":"user","content":"u2"}]`),
			`[{"role":"system","content":"S"},{"role":"user","content":"u1\n\n<system-reminder>\nAvailable ` +
				`agents\n</system-reminder>"},{"role":"assistant","content":"a1"},{"role":"user","content":"u2"}]`, "",
		},
		{
			"B12 the billing line in a user's text stays", Messages,
			messagesBody(`"system":[{"type":"text","text":"` + billingText +
				`a5145;"},{"type":"text","text":"You are"}],"messages":[{"role":"user","content":"` + billingText + `a5145;"}]`),
			`[{"role":"system","content":"You are"},{"role":"user","content":"` + billingText + `a5145;"}]`, "",
		},
		{
			"B13 developer", Responses,
			responsesBody(`"instructions":"I","input":[{"role":"developer","content":"D"},{"role":"user","content":"u"}]`),
			`[{"role":"system","content":"I\n\nD"},{"role":"user","content":"u"}]`, "",
		},
		{
			"B14 custom tool in the history", Responses,
			responsesBody(`"tools":[{"type":"custom","name":"apply_patch","description":"Patches.",` +
				`"format":{"type":"grammar","syntax":"lark","definition":"start: x"}}],"input":[{"role":"user","content":"u"},` +
				`{"type":"custom_tool_call","call_id":"c1","name":"apply_patch","input":"*** Begin\n"},` +
				`{"type":"custom_tool_call_output","call_id":"c1","output":"Done"}]`),
			`[{"role":"user","content":"u"},{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",` +
				`"function":{"name":"apply_patch","arguments":"{\"input\":\"*** Begin\\n\"}"}}]},{"role":"tool",` +
				`"tool_call_id":"c1","content":"Done"}]`,
			`[{"type":"function","function":{"name":"apply_patch","description":"Patches.\n\nThe input must follow this lark ` +
				`grammar:\nstart: x","parameters":{"type":"object","properties":{"input":{"type":"string"}},` +
				`"required":["input"]}}}]`,
		},
		{
			"B15 namespace in the history", Responses,
			responsesBody(`"tools":[{"type":"namespace","name":"mcp__docs__","tools":[{"type":"function","name":"search",` +
				`"parameters":{"type":"object","properties":{}}}]}],"input":[{"role":"user","content":"u"},` +
				`{"type":"function_call","call_id":"c1","name":"search","namespace":"mcp__docs__","arguments":"{}"},` +
				`{"type":"function_call_output","call_id":"c1","output":"1"}]`),
			`[{"role":"user","content":"u"},{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",` +
				`"function":{"name":"mcp__docs__search","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"1"}]`,
			`[{"type":"function","function":{"name":"mcp__docs__search","parameters":{"type":"object","properties":{}}}}]`,
		},
		{
			"B16 hosted tools", Responses,
			responsesBody(`"input":"u","tools":[{"type":"function","name":"exec_command","parameters":{"type":"object",` +
				`"properties":{}}},{"type":"namespace","name":"n","tools":[]},{"type":"web_search"},{"type":"image_generation"}]`),
			`[{"role":"user","content":"u"}]`,
			`[{"type":"function","function":{"name":"exec_command","parameters":{"type":"object","properties":{}}}}]`,
		},
		{
			"B17 items of Codex", Responses,
			responsesBody(`"input":[{"type":"additional_tools","role":"developer","tools":[{"type":"namespace",` +
				`"name":"functions","tools":[{"type":"custom","name":"exec"}]}]},{"role":"user","content":"u"},` +
				`{"type":"tool_search_call","id":"t"},{"type":"tool_search_output","tools":[{"type":"function","name":"found"},` +
				`{"type":"function","name":"found"}]},{"type":"compaction_trigger"},{"type":"agent_message","content":"x"}]`),
			`[{"role":"user","content":"u"},{"role":"user","content":"[agent_message]\nx"}]`,
			`[{"type":"function","function":{"name":"functions__exec","parameters":{"type":"object",` +
				`"properties":{"input":{"type":"string"}},"required":["input"]}}},{"type":"function","function":{"name":"found",` +
				`"parameters":{"type":"object","properties":{}}}}]`,
		},
		{
			"B18 thinking alone, a call alone", Messages,
			messagesBody(`"messages":[{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"thinking",` +
				`"thinking":"hm","signature":"s"}]},{"role":"user","content":"v"},{"role":"assistant",` +
				`"content":[{"type":"tool_use","id":"c1","name":"f","input":{"a":1}}]},{"role":"user",` +
				`"content":[{"type":"tool_result","tool_use_id":"c1"}]}]`),
			`[{"role":"user","content":"u"},{"role":"assistant","content":"","reasoning_content":"hm","reasoning":"hm"},` +
				`{"role":"user","content":"v"},{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",` +
				`"function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":""}]`, "",
		},
		{
			"B19 no tools at all", Responses,
			responsesBody(`"input":"u","tools":[],"tool_choice":"auto","parallel_tool_calls":true`),
			`[{"role":"user","content":"u"}]`, "",
		},
		{
			"B19 nothing but a hosted tool, forbidden", Responses,
			responsesBody(`"input":"u","tools":[{"type":"web_search"}],"tool_choice":"none","parallel_tool_calls":true`),
			`[{"role":"user","content":"u"}]`, "",
		},
		{
			"B20 schema without properties", Messages,
			messagesBody(`"messages":[{"role":"user","content":"u"}],"tools":[{"name":"f","input_schema":{"type":"object"}},` +
				`{"name":"f","description":"again","input_schema":{"type":"object"}}]`),
			`[{"role":"user","content":"u"}]`,
			`[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]`,
		},
		{
			"B20 no schema", Responses,
			responsesBody(`"input":"u","tools":[{"type":"function","name":"f","parameters":null}]`),
			`[{"role":"user","content":"u"}]`,
			`[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]`,
		},
		{
			"B22 failed calls", Messages,
			messagesBody(`"messages":[{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"tool_use",` +
				`"id":"c1","name":"f","input":{}},{"type":"tool_use","id":"c2","name":"f","input":{}},{"type":"tool_use",` +
				`"id":"c3","name":"f","input":{}},{"type":"tool_use","id":"c4","name":"f","input":{}}]},{"role":"user",` +
				`"content":[{"type":"tool_result","tool_use_id":"c1","is_error":true,"content":"City not found"},` +
				`{"type":"tool_result","tool_use_id":"c2","is_error":true,"content":[{"type":"text","text":"City not found"}]},` +
				`{"type":"tool_result","tool_use_id":"c3","is_error":true},{"type":"tool_result","tool_use_id":"c4",` +
				`"is_error":true,"content":"Error: no"}]}]`),
			`[{"role":"user","content":"u"},{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",` +
				`"function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"f",` +
				`"arguments":"{}"}},{"id":"c3","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c4",` +
				`"type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1",` +
				`"content":"Error: City not found"},{"role":"tool","tool_call_id":"c2","content":"Error: City not found"},` +
				`{"role":"tool","tool_call_id":"c3","content":"Error: tool failed"},{"role":"tool","tool_call_id":"c4",` +
				`"content":"Error: no"}]`, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var body map[string]any
			text := upstreamBody(t, decodeCase(t, c.dialect, c.body))
			if err := json.Unmarshal([]byte(text), &body); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			sameJSON(t, "messages", body["messages"], c.messages)
			if c.tools != "" {
				sameJSON(t, "tools", body["tools"], c.tools)
				return
			}
			for _, key := range []string{"tools", "tool_choice", "parallel_tool_calls"} {
				if v, ok := body[key]; ok {
					t.Errorf("%s: %v", key, v)
				}
			}
		})
	}
}

// TestB6IDs checks that the client gets another id in place of one that its dialect does not allow, and
// that it names the same call in later requests.
func TestB6IDs(t *testing.T) {
	c := decodeCase(t, Messages, messagesBody(`"messages":[{"role":"user","content":"u"}],"tools":[{"name":"bash",`+
		`"input_schema":{"type":"object"}}]`))
	s := c.NewStream()
	digest := messagesDigest(t, translate(s,
		toolChunk(call(0, "functions.bash:0", "bash", `{}`))+finishChunk("tool_calls")+upstreamDone, nil))
	id := strings.Fields(digest)[0][len("tool:"):]
	if !isToolUse(id) {
		t.Fatalf("id %q", id)
	}
	body := upstreamBody(t, decodeCase(t, Messages,
		messagesBody(`"messages":[{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"tool_use","id":"`+id+
			`","name":"bash","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+id+
			`","content":"ok"}]}]`)))
	if strings.Count(body, id) != 2 || !strings.Contains(body, `"tool_call_id":"`+id+`"`) {
		t.Errorf("call and result do not match: %s", body)
	}
}

// isToolUse reports whether the messages dialect allows an id.
func isToolUse(id string) bool {
	return id != "" && len(id) <= 64 &&
		strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// TestB11Extends checks that the body for a longer history begins with that for the shorter one.
func TestB11Extends(t *testing.T) {
	first := `{"role":"user","content":"u1"},{"role":"system","content":"Available agents"}`
	second := first + `,{"role":"assistant","content":[{"type":"text","text":"a1"},{"type":"tool_use","id":"c1",` +
		`"name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"1"}]},` +
		`{"role":"system","content":"More"}`
	a := upstreamBody(t, decodeCase(t, Messages, messagesBody(`"system":"S","messages":[`+first+`]`)))
	b := upstreamBody(t, decodeCase(t, Messages, messagesBody(`"system":"S","messages":[`+second+`]`)))
	if !strings.HasPrefix(b, strings.TrimSuffix(a, "]}")) {
		t.Errorf("%s\ndoes not extend\n%s", b, a)
	}
	if strings.Count(b, `"role":"system"`) != 1 {
		t.Errorf("more than one system message: %s", b)
	}
}

// TestB12Billing checks that requests that differ only in the billing line have equal bodies.
func TestB12Billing(t *testing.T) {
	bodies := map[string]bool{}
	for _, nonce := range []string{"a5145", "0aaa9"} {
		for _, system := range []string{
			`[{"type":"text","text":"` + billingText + nonce + `;"},{"type":"text","text":"You are"}]`,
			`"` + billingText + nonce + `;\nYou are"`,
			`"` + billingText + nonce + `;You are"`,
		} {
			bodies[upstreamBody(t, decodeCase(t, Messages,
				messagesBody(`"system":`+system+`,"messages":[{"role":"user","content":"u"}]`)))] = true
		}
	}
	for body := range bodies {
		if len(bodies) != 1 || strings.Contains(body, "billing") || !strings.Contains(body, "You are") {
			t.Errorf("%s", body)
		}
	}
}

// TestB14B15Names checks that calls have the tool names of the client, even if two tools would have the
// same name upstream.
func TestB14B15Names(t *testing.T) {
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

// TestB23Stop checks that stop sequences are sent as an array, even a single one.
func TestB23Stop(t *testing.T) {
	body := upstreamBody(t, decodeCase(t, Messages,
		messagesBody(`"messages":[{"role":"user","content":"u"}],"stop_sequences":["END"]`)))
	if !strings.Contains(body, `"stop":["END"]`) {
		t.Errorf("%s", body)
	}
}

// TestCasesThroughDecode runs the cases about answers with decoded calls.
func TestCasesThroughDecode(t *testing.T) {
	requests := map[Dialect]string{
		Messages:  messagesBody(`"messages":[{"role":"user","content":"u"}]`),
		Responses: responsesBody(`"input":"u"`),
	}
	for _, c := range answerCases {
		if c.change != nil {
			continue
		}
		for d, want := range map[Dialect]string{Messages: c.messages, Responses: c.responses} {
			out := translate(decodeCase(t, d, requests[d]).NewStream(), c.upstream, nil)
			digest := responsesDigest
			if d == Messages {
				digest = messagesDigest
			}
			if got := digest(t, out); !sameDigest(got, want) {
				t.Errorf("%s, %s\n got %s\nwant %s", c.name, d, got, want)
			}
		}
	}
}
