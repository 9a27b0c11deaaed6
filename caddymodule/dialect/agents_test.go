package dialect

import (
	"encoding/json"
	"strings"
	"testing"
)

// The requests of this file have the form of those that coding agents send. Their
// texts are made up.

// codexHead has the members, other than the input, of a request of a Codex-like agent.
const codexHead = `{"model":"public","stream":true,"store":false,"include":["reasoning.encrypted_content"],` +
	`"reasoning":{"effort":"medium","summary":"auto"},` +
	`"parallel_tool_calls":true,"prompt_cache_key":"thread-1","client_metadata":{"installation":"x"},` +
	`"tool_choice":"auto","tools":[` +
	`{"type":"function","name":"exec_command","description":"Runs a command.","strict":false,` +
	`"parameters":{"type":"object","properties":{"cmd":{"type":"string"}},"required":["cmd"],` +
	`"additionalProperties":false}},` +
	`{"type":"custom","name":"apply_patch","description":"Edits files.","format":{"type":"grammar","syntax":"lark",` +
	`"definition":"start: begin hunk+ end\n"}},` +
	`{"type":"namespace","name":"multi_agent_v1","description":"Agents.","tools":[{"type":"function","name":"spawn",` +
	`"description":"Starts an agent.","strict":false,"parameters":{"type":"object",` +
	`"properties":{"task":{"type":"string"}}}}]},` +
	`{"type":"web_search","external_web_access":false},{"type":"tool_search","execution":"client"},` +
	`{"type":"image_generation","output_format":"png"}],"input":[`

// codexStart is the beginning of the input of such an agent.
const codexStart = `{"type":"additional_tools","id":"at_1","role":"developer","tools":[{"type":"namespace",` +
	`"name":"mcp__docs__","tools":[{"type":"function","name":"search","parameters":{"type":"object",` +
	`"properties":{"q":{"type":"string"}}}}]}]},` +
	`{"type":"message","id":"msg_1","role":"developer","content":[{"type":"input_text","text":"Permissions: ask."}],` +
	`"internal_chat_message_metadata_passthrough":{"a":1}},` +
	`{"type":"message","id":"msg_2","role":"developer","content":[{"type":"input_text","text":"Skills: none."}]},` +
	`{"type":"message","id":"msg_3","role":"user","content":[{"type":"input_text",` +
	`"text":"<environment_context>cwd</environment_context>"}]},` +
	`{"type":"message","id":"msg_4","role":"user","content":[{"type":"input_text","text":"Fix it."}]}`

// codexUp is the upstream's body for codexStart. The list of messages is left open.
const codexUp = `{"model":"up","stream":true,"stream_options":{"include_usage":true},"reasoning_effort":"medium",` +
	`"parallel_tool_calls":true,"tools":[` +
	`{"type":"function","function":{"name":"exec_command","description":"Runs a command.",` +
	`"parameters":{"type":"object","properties":{"cmd":{"type":"string"}},"required":["cmd"],` +
	`"additionalProperties":false}}},` +
	`{"type":"function","function":{"name":"apply_patch","description":"Edits files.\n\nThe input must follow this ` +
	`lark grammar:\nstart: begin hunk+ end\n","parameters":{"type":"object","properties":{"input":{"type":"string"}},` +
	`"required":["input"]}}},` +
	`{"type":"function","function":{"name":"multi_agent_v1__spawn","description":"Starts an agent.",` +
	`"parameters":{"type":"object","properties":{"task":{"type":"string"}}}}},` +
	`{"type":"function","function":{"name":"mcp__docs__search","parameters":{"type":"object",` +
	`"properties":{"q":{"type":"string"}}}}}` +
	`],"tool_choice":"auto","messages":[` +
	`{"role":"system","content":"Tools of multi_agent_v1: Agents.\n\nPermissions: ask.\n\nSkills: none."},` +
	`{"role":"user","content":"<environment_context>cwd</environment_context>"},{"role":"user","content":"Fix it."}`

// A Codex-like agent returns the items of the answer unchanged in its next turn, with the results of
// its tools.
func TestCodexTurn(t *testing.T) {
	first := decodeCase(t, Responses, codexHead+codexStart+`]}`)
	if got, want := upstreamBody(t, first), codexUp+"]}"; got != want {
		t.Fatalf("\n got %s\nwant %s", got, want)
	}
	const patch = "*** Begin Patch\n\"é\"\n*** End Patch\n"
	arguments := `{"input":` + quoted(patch) + `}`
	answer := translate(first.NewStream(), reasonChunk("hm")+contentChunk("On it.")+
		toolChunk(call(0, "c0", "exec_command", `{"cmd":"ls"}`))+
		toolChunk(call(1, "c1", "apply_patch", arguments[:20]))+toolChunk(more(1, arguments[20:]))+
		toolChunk(call(2, "c2", "multi_agent_v1__spawn", `{"task":"t"}`))+
		toolChunk(call(3, "c3", "mcp__docs__search", `{"q":"x"}`))+
		finishChunk("tool_calls")+usageChunk(9, 0, 9)+upstreamDone, nil)
	events, err := clientEvents(answer)
	if err != nil {
		t.Fatal(err)
	}
	input, names := codexStart, []string(nil)
	for _, e := range events {
		if e.name != "response.output_item.done" {
			continue
		}
		item, _ := dig(e.json, "item").(map[string]any)
		names = append(names, str(item, "type")+" "+str(item, "namespace")+" "+str(item, "name"))
		if str(item, "type") == "reasoning" {
			item["summary"], item["content"] = []any{}, nil
		}
		text, err := json.Marshal(item)
		if err != nil {
			t.Fatal(err)
		}
		input += "," + string(text)
	}
	const wantNames = "reasoning  |message  |function_call  exec_command|custom_tool_call  apply_patch|function_call " +
		"multi_agent_v1 spawn|function_call mcp__docs__ search"
	if got := strings.Join(names, "|"); got != wantNames {
		t.Fatalf("\n got %s\nwant %s", got, wantNames)
	}
	input += `,{"type":"function_call_output","call_id":"c3","output":"[{\"type\":\"input_image\",` +
		`\"image_url\":\"data:image/png;base64,iVBO\"}]"},` +
		`{"type":"custom_tool_call_output","call_id":"c1","output":"Done"},{"type":"function_call_output","call_id":"c0",` +
		`"output":"a.go"},` +
		`{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"ok"}]},` +
		`{"type":"message","role":"developer","content":[{"type":"input_text","text":"Be brief."}]},` +
		`{"type":"compaction_trigger"},{"type":"agent_message","content":"x"}`
	want := codexUp + "," + chatCall("On it.", thought,
		[3]string{"c0", "exec_command", `{"cmd":"ls"}`}, [3]string{"c1", "apply_patch", arguments},
		[3]string{"c2", "multi_agent_v1__spawn", `{"task":"t"}`}, [3]string{"c3", "mcp__docs__search", `{"q":"x"}`}) + "," +
		toolSays("c0", "a.go") + "," + toolSays("c1", "Done") + "," + toolSays("c2", "ok") + "," +
		toolSays("c3", "[image]\n\n"+reminder("Be brief.")) + "," +
		userSays(chatPNG+`,{"type":"text","text":"[agent_message]\nx"}`) + "]}"
	if got := upstreamBody(t, decodeCase(t, Responses, codexHead+input+`]}`)); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// claudeBody is a request of a Claude-Code-like agent. Its billing line and
// its cache breakpoints change with each request.
func claudeBody(nonce, messages string) string {
	return `{"model":"public","max_tokens":32000,"stream":true,"thinking":{"type":"adaptive","display":"summarized"},` +
		`"output_config":{"effort":"high"},` +
		`"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},` +
		`"metadata":{"user_id":"{\"device_id\":\"x\"}"},"safeguards":{},"system":[` +
		`{"type":"text","text":"` + billingText + nonce +
		`;"},{"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"Be ` +
		`careful.","cache_control":{"type":"ephemeral","ttl":"1h"}}],` +
		`"tools":[{"name":"Bash","description":"Runs.",` +
		`"input_schema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
		`"properties":{"command":{"type":"string"}},"required":["command"],"additionalProperties":false},` +
		`"eager_input_streaming":true},` +
		`{"name":"ToolSearch","input_schema":{"type":"object","properties":{"query":{"type":"string"}}}},` +
		`{"name":"WebFetch","defer_loading":true,"input_schema":{"type":"object"}},` +
		`{"type":"web_search_20250305","name":"web_search","max_uses":8}],"messages":[` + messages + `]}`
}

// claudeStart is the beginning of the conversation of such an agent.
const claudeStart = `{"role":"user","content":[{"type":"text","text":"Fix it.",` +
	`"cache_control":{"type":"ephemeral"}}]},{"role":"system","content":[{"type":"text","text":"cwd: /src"},` +
	`{"type":"text","text":"Skills: none."}]}`

// claudeUp is the upstream's body for claudeStart. The list of messages is left open.
var claudeUp = `{"model":"up","stream":true,"stream_options":{"include_usage":true},"max_tokens":32000,"tools":[` +
	`{"type":"function","function":{"name":"Bash","description":"Runs.",` +
	`"parameters":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
	`"properties":{"command":{"type":"string"}},"required":["command"],"additionalProperties":false}}},` +
	`{"type":"function","function":{"name":"ToolSearch","parameters":{"type":"object",` +
	`"properties":{"query":{"type":"string"}}}}},` +
	`{"type":"function","function":{"name":"WebFetch","parameters":{"type":"object","properties":{}}}}` +
	`],"messages":[` + saying("system", "You are an agent.\n\nBe careful.") + "," +
	saying("user", "Fix it.\n\n"+reminder("cwd: /src\n\nSkills: none."))

// A Claude-Code-like agent returns the blocks of the answer in its next turn.
func TestClaudeCodeTurn(t *testing.T) {
	first := decodeCase(t, Messages, claudeBody("a5145", claudeStart))
	if got, want := upstreamBody(t, first), claudeUp+"]}"; got != want {
		t.Fatalf("\n got %s\nwant %s", got, want)
	}
	told, _, fault := first.Answer([]byte(wholeBody(`"content":"On it.","reasoning_content":"hm","tool_calls":[`+
		call(0, "call_1", "ToolSearch", `{"query":"fetch"}`)+`,`+call(1, "call_2", "Bash", `{"command": "ls"}`)+`]`,
		`"tool_calls"`, "")))
	if fault != nil {
		t.Fatal(fault.Message)
	}
	var message struct{ Content json.RawMessage }
	if err := json.Unmarshal(told, &message); err != nil {
		t.Fatal(err)
	}
	messages := strings.Replace(claudeStart, `,"cache_control":{"type":"ephemeral"}`, "", 1) +
		`,{"role":"assistant","content":` + string(message.Content) + `},` +
		userSays(result("call_2", `"content":"no such file","is_error":true,"cache_control":{"type":"ephemeral"}`)+","+
			result("call_1", `"content":[{"type":"tool_reference","tool_name":"WebFetch"}]`)) +
		`,{"role":"system","content":"Note."}`
	want := claudeUp + "," + chatCall("On it.", thought, [3]string{"call_1", "ToolSearch", `{"query":"fetch"}`},
		[3]string{"call_2", "Bash", `{"command":"ls"}`}) + "," +
		toolSays("call_1", "[tool: WebFetch]") + "," + toolSays("call_2", "Error: no such file\n\n"+reminder("Note.")) + "]}"
	if got := upstreamBody(t, decodeCase(t, Messages, claudeBody("0aaa9", messages))); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}
