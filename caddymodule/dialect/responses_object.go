package dialect

import (
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// responseState holds the variable members of a response object.
type responseState struct {
	status     string // in_progress, completed, incomplete or failed
	output     []byte // the items, separated by commas
	usage      []byte // nil: null
	done       int64  // Unix seconds; 0: null
	err        []byte // the error object; nil: null
	incomplete []byte // incomplete_details; nil: null
}

// appendResponse appends the response object. It has every key that clients' types and
// the Open Responses test suite require. The latter also requires numbers for the
// sampling parameters.
func (r *responsesEncoder) appendResponse(b []byte, s responseState) []byte {
	call := r.call
	b = jsonscan.Appendf(b, `{"id":%q,"object":"response","created_at":%d,"completed_at":%n,"status":%q,`+
		`"background":false,"error":%n,"incomplete_details":%n`,
		r.id, r.created, s.done, s.status, s.err, s.incomplete)
	b = call.appendEchoes(b, "instructions", "null", "max_output_tokens", "null", "max_tool_calls", "null")
	b = jsonscan.Appendf(b, `,"model":%q,"output":[%s]`, call.model, s.output)
	b = call.appendEchoes(b, "parallel_tool_calls", "true", "previous_response_id", "null", "prompt_cache_key", "null",
		"reasoning", `{"effort":null,"summary":null}`, "safety_identifier", "null")
	b = append(b, `,"service_tier":"default"`...)
	b = call.appendEchoes(b, "store", "true", "temperature", "1", "text", `{"format":{"type":"text"}}`,
		"tool_choice", `"auto"`, "tools", "[]", "top_logprobs", "0", "top_p", "1", "presence_penalty", "0",
		"frequency_penalty", "0", "truncation", `"disabled"`)
	b = jsonscan.Appendf(b, `,"usage":%n,"user":null`, s.usage)
	return append(call.appendEchoes(b, "metadata", "{}"), '}')
}

// appendResponseUsage appends a response's usage. Like the upstream's, its input tokens
// include cached ones.
func appendResponseUsage(b []byte, u Usage) []byte {
	input, output := max(u.PromptTokens, 0), max(u.CompletionTokens, 0)
	return jsonscan.Appendf(b, `{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":0},`+
		`"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}`,
		input, max(u.CachedTokens, 0), output, max(u.ReasoningTokens, 0), input+output)
}

// itemForm describes a kind of output item: its type, the prefix of its id, the key of
// its text or action, and the names in its events.
type itemForm struct {
	name, prefix, key string
	text              string // text events, without ".delta" and ".done"; "" for an action, which is not streamed
	part              string // part events, without ".added" and ".done"; "" if it has no part
	partType          string
	index             string // the member for the part's index in the item
}

// The forms of items.
var (
	messageItem = itemForm{
		"message", "msg_", "text", "output_text", "content_part", "output_text",
		`,"content_index":0`,
	}
	refusalItem   = itemForm{"message", "msg_", "refusal", "refusal", "content_part", "refusal", `,"content_index":0`}
	reasoningItem = itemForm{
		"reasoning", "rs_", "text", "reasoning_summary_text", "reasoning_summary_part",
		"summary_text", `,"summary_index":0`,
	}
	compactionItem = itemForm{name: "compaction", prefix: "cmp_"}

	callItems = [...]itemForm{
		ToolFunction:   {name: "function_call", prefix: "fc_", key: "arguments", text: "function_call_arguments"},
		ToolCustom:     {name: "custom_tool_call", prefix: "ctc_", key: "input", text: "custom_tool_call_input"},
		ToolLocalShell: {name: "local_shell_call", prefix: "lsh_", key: "action"},
		ToolShell:      {name: "shell_call", prefix: "sh_", key: "action"},
		ToolApplyPatch: {name: "apply_patch_call", prefix: "apc_", key: "operation"},
	}
)

// formOf returns the form of a part of the answer. tool is the kind of a tool call.
func formOf(kind partKind, tool ToolKind) *itemForm {
	switch kind {
	case partTool:
		return &callItems[tool]
	case partRefusal:
		return &refusalItem
	case partReason:
		return &reasoningItem
	}
	return &messageItem
}

// responseItem is an output item in progress. Its texts are JSON strings without quotes.
type responseItem struct {
	form   *itemForm
	kind   partKind
	id     string
	callID string
	tool   ToolName
	text   []byte // the text, or a call's arguments or input
	probs  []byte // log probabilities of the text, JSON elements separated by commas
	action []byte // JSON, of a local_shell, shell or apply_patch call
}

// Statuses of items and responses.
const (
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
)

// append appends the item. While it is in progress, it has no content.
func (t *responseItem) append(b []byte, status string, call *reply) []byte {
	b = jsonscan.Appendf(b, `{"id":%q,"type":"%s"`, t.id, t.form.name)
	if t.form == &compactionItem { // it has no status
		return append(t.appendSealed(b, compactionMark, call.env), '}')
	}
	if t.kind == partText || t.kind == partRefusal {
		b = append(b, `,"role":"assistant"`...)
	}
	b = jsonscan.Appendf(b, `,"status":"%s"`, status)
	begun := status != statusInProgress
	switch {
	case t.kind == partTool:
		return append(t.appendCall(b), '}')
	case t.kind == partReason:
		b = append(b, `,"summary":[`...)
	default:
		b = append(b, `,"content":[`...)
	}
	if begun {
		b = t.appendPart(b)
	}
	b = append(b, ']')
	if begun && t.kind == partReason && call.encrypted {
		b = t.appendSealed(b, reasoningMark, call.env)
	}
	return append(b, '}')
}

// appendPart appends the only part of the item.
func (t *responseItem) appendPart(b []byte) []byte {
	b = jsonscan.Appendf(b, `{"type":"%s","%s":"%s"`, t.form.partType, t.form.key, t.text)
	if t.kind == partText {
		b = jsonscan.Appendf(b, `,"annotations":[],"logprobs":[%s]`, t.probs)
	}
	return append(b, '}')
}

// appendSealed appends the item's text as encrypted_content, which clients return
// unchanged.
func (t *responseItem) appendSealed(b []byte, mark string, env *Env) []byte {
	b = append(b, `,"encrypted_content":"`...)
	text := t.text
	if t.kind == partReason { // its text is also sent unencrypted, and is escaped
		text = []byte(jsonscan.Unescape(text))
	}
	return append(env.seal(b, mark, text), '"')
}

// appendCall appends the members of a tool call.
func (t *responseItem) appendCall(b []byte) []byte {
	b = jsonscan.Appendf(b, `,"call_id":%q`, t.callID)
	switch t.tool.Kind {
	case ToolFunction, ToolCustom:
		b = jsonscan.Appendf(b, `,"name":%q`, t.tool.Name)
		if t.tool.Namespace != "" {
			b = jsonscan.Appendf(b, `,"namespace":%q`, t.tool.Namespace)
		}
		return jsonscan.Appendf(b, `,"%s":"%s"`, t.form.key, t.text)
	case ToolShell:
		b = append(b, `,"environment":null`...)
	}
	return jsonscan.Appendf(b, `,"%s":%s`, t.form.key, t.action)
}
