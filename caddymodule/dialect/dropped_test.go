package dialect

import (
	"strconv"
	"strings"
	"testing"
)

// The list is bounded, and tells that it omits parts.
func TestDroppedPartsAreBounded(t *testing.T) {
	d := &translation{reply: reply{dialect: Messages}, path: []step{{"tools", 2}}}
	for i := range 500 {
		d.drop("", "type_"+strconv.Itoa(i))
	}
	n := strings.Count(d.dropped, "type_")
	if len(d.dropped) > maxDropped || n < 30 || !strings.HasSuffix(d.dropped, "), and more") {
		t.Errorf("%d parts in %d bytes: %s", n, len(d.dropped), d.dropped)
	}
}

// A history repeats what it lacks: a type is listed once. A path without a type is not part of another one.
func TestDroppedTypesAreListedOnce(t *testing.T) {
	turn := `,{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"container_upload"},` +
		`{"type":"web_search_tool_result","content":[{"title":"T","url":"https://e.org","encrypted_content":"x"}]}]}`
	call := mustDecode(t, messagesOp, `{"model":"m","max_tokens":1,"x_stop":1,"stop":1,"messages":[`+turn[1:]+
		strings.Repeat(turn, 40)+`]}`, testEnv())
	want := "x_stop, stop, messages.1.content.0 (container_upload), messages.1.content.1 (web_search_tool_result)"
	if got := call.Dropped(); got != want {
		t.Errorf("dropped %q, want %q", got, want)
	}
}

// Members of a request without a reader are named, unless they mean nothing to a model.
func TestDroppedMembers(t *testing.T) {
	messages := `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"u"}],`
	responses := `{"model":"m","input":"u",`
	for _, c := range []struct {
		name, body, want string
	}{
		{"nothing", messages + `"stream":false}`, ""},
		{"null", messages + `"compaction":null}`, ""},
		{"compaction", messages + `"compaction":{"type":"auto"},"output_config":{"effort":"low"}}`, "compaction"},
		{"the name of an inner member", messages + `"title":"t","reasoning_effort":"low"}`, "title, reasoning_effort"},
		{"of another dialect", messages + `"truncation":"auto","input":"u"}`, "truncation, input"},
		{
			"odd names", messages + `"a\r\nSet-Cookie: b":1,"é":2,"\u0062":3,"":4}`,
			"invalid name, invalid name, b, invalid name",
		},
		{
			"edits", messages + `"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"},` +
				`{"type":"clear_tool_uses_20250919"},7,{"type":"compact_20260112"},{}]}}`,
			"context_management.edits.1 (clear_tool_uses_20250919), context_management.edits.3 (compact_20260112)",
		},
		{"odd edits", messages + `"context_management":{"edits":"x"}}`, ""},
		{
			"an effort from a message on", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"u"},` +
				`{"role":"system","content":"s","clear_at":"next_user_message","output_config":{"effort":"low"}}]}`,
			"messages.1.output_config",
		},
		{
			"members of blocks", `{"model":"m","max_tokens":1,"thinking":{"type":"between_tools","block_binding":{}},` +
				`"container":{"skills":[{"type":"custom"}]},"messages":[{"role":"user","content":[` +
				strings.Repeat(`{"type":"document","source":{"type":"text","data":"d"},"citations":{"enabled":true}},`, 20) +
				`{"type":"text","text":"u"}]}]}`,
			"container.skills, messages.0.content.0.citations (enabled), thinking.type (between_tools)",
		},
		{
			"members of tools", messages + `"thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":` +
				`"error"}},"container":{"id":"c","skills":[]},"tools":[{"name":"a","allowed_callers":["direct","x"]},` +
				`{"type":"bash_20250124","name":"b","allowed_callers":["x"]},{"name":"c","allowed_callers":["x"]},` +
				`{"type":"computer_20251124","name":"d","enable_zoom":true}]}`,
			"thinking.block_binding, tools.1.allowed_callers (indirect), tools.3.enable_zoom (true)",
		},
		{
			"members of tools of responses", responses + `"reasoning":{"context":"current_turn","mode":"standard"},` +
				`"tools":[{"type":"function","name":"a","async":false,"allowed_callers":null},{"type":"namespace","name":"n",` +
				`"tools":[{"type":"custom","name":"b","async":true,"allowed_callers":["programmatic"]}]}]}`,
			"tools[1].tools[0].allowed_callers (indirect), tools[1].tools[0].async (true), reasoning.context (current_turn)",
		},
		{
			"phases", `{"model":"m","input":[{"role":"user","content":"u"},{"role":"assistant","content":"a","phase":` +
				`"final_answer"},{"role":"assistant","content":"b","phase":null}]}`,
			"input[1].phase (final_answer)",
		},
		{
			"tools", messages + `"tools":[{"name":"a"},{"type":"web_search_20250305","name":"w"},{"type":"mcp_toolset"},` +
				`{"type":"computer_toolset_20260801"},{"type":"bash_20250124"}]}`,
			"tools.1 (web_search_20250305), tools.2 (mcp_toolset), tools.4 (bash_20250124)",
		},
		{
			"tools of responses", responses + `"tools":[{"type":"function","name":"a"},{"type":"web_search"},` +
				`{"type":"namespace","name":"n","tools":[{"type":"shell"},{"type":"namespace","name":"o","tools":[]}]}]}`,
			"tools[1] (web_search), tools[2].tools[0] (shell), tools[2].tools[1] (namespace)",
		},
		{
			"tools of items", `{"model":"m","input":[{"role":"user","content":"u"},{"type":"additional_tools","tools":[` +
				`{"type":"function","name":"a"},{"type":"web_search"},{"type":"function"},{"type":"custom","name":"b"},` +
				`{"name":"c","parameters":[]},{"type":"namespace","name":"n","tools":[{"type":"custom"}]},7]}]}`,
			"input[1].tools[1] (web_search), input[1].tools[2] (function), input[1].tools[4], " +
				"input[1].tools[5].tools[0] (custom)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			op := messagesOp
			if strings.Contains(c.body, `"input":[`) || strings.HasPrefix(c.body, responses) {
				op = responsesOp
			}
			if got := mustDecode(t, op, c.body, testEnv()).Dropped(); got != c.want {
				t.Errorf("dropped %q, want %q", got, c.want)
			}
		})
	}
}

// Nothing that a request can hold makes the list longer than its bound.
func TestDroppedPartsOfLargeRequests(t *testing.T) {
	many := strings.Repeat(`,{"type":"`+strings.Repeat("w", 64)+`"}`, maxElements-2)
	call := mustDecode(t, messagesOp, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"u"}],`+
		`"tools":[{"name":"a"}`+many+`]`+strings.Repeat(`,"x":1`, 1_000_000)+`}`, testEnv())
	got := call.Dropped()
	if len(got) > maxDropped || !strings.HasPrefix(got, "x, x, ") || !strings.HasSuffix(got, " more") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// A toolset stands for tools that the client runs. Calls carry the names of the toolset and of its tool, in
// answers and in the history.
func TestToolsets(t *testing.T) {
	head := `{"model":"public","max_tokens":9,"tools":[{"name":"left_click"},{"type":"computer_toolset_20260801"},` +
		`{"type":"browser_toolset_20260801","configs":{"zoom":{"enabled":false},"javascript_exec":{"enabled":true},` +
		`"find":{"enabled":"no"},"hover":{"defer_loading":true},"unknown":{"enabled":true},"wait":7}}],"messages":[`
	c := mustDecode(t, messagesOp, head+`{"role":"user","content":"u"},{"role":"assistant","content":[`+
		`{"type":"tool_use","id":"t1","name":"left_click","toolset_name":"computer","input":{"coordinate":[1,2]}}]},`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","toolset_name":"computer","content":"ok"}]}]}`,
		testEnv())
	up := upstreamBody(t, c)
	checkChatRequest(t, []byte(up), false)
	if n := strings.Count(up, `{"type":"function","function":{"name":`); n != 1+17+31-4 {
		t.Errorf("%d tools", n)
	}
	for name, want := range map[string]bool{
		"left_click": true, "computer__left_click": true, "browser__left_click": true, "computer__zoom": true,
		"browser__zoom": false, "browser__javascript_exec": true, "browser__read_console": false, "browser__find": true,
		"browser__hover": true, "browser__wait": true, "browser__unknown": false, "browser__file_upload": false,
	} {
		if got := strings.Contains(up, `"function":{"name":"`+name+`"`); got != want {
			t.Errorf("%s: offered %t", name, got)
		}
	}
	if !strings.Contains(up, `"function":{"name":"computer__left_click","arguments":"{\"coordinate\":[1,2]}"}`) {
		t.Error("the call in the history has another name: " + up)
	}
	if c.Dropped() != "" {
		t.Errorf("dropped %q", c.Dropped())
	}
	answer := translate(c.NewStream(), toolChunk(call(0, "c", "browser__left_click", `{"target":{}}`))+
		finishChunk("tool_calls")+upstreamDone, nil)
	want := `"id":"c","name":"left_click","input":{},"caller":{"type":"direct"},"toolset_name":"browser"}`
	if !strings.Contains(answer, want) {
		t.Errorf("%s\nlacks %s", answer, want)
	}
}
