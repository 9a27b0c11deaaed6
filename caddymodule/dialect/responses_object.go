package dialect

import (
	"strconv"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// responseState holds the variable members of a response object.
type responseState struct {
	status string // in_progress, completed, incomplete or failed
	output []byte // the items, separated by commas
	usage  *Usage // nil: null
	done   int64  // Unix seconds; 0: null
	err    []byte // the error object; nil: null
	reason string // of incomplete_details; "": null
}

// appendResponse appends the response object. It has every key that clients' types and
// the Open Responses test suite require. The latter also requires numbers for the
// sampling parameters.
func (r *responsesEncoder) appendResponse(b []byte, s responseState) []byte {
	call := r.call
	b = jsonscan.AppendQuoted(append(b, `{"id":`...), r.id)
	b = strconv.AppendInt(append(b, `,"object":"response","created_at":`...), r.created, 10)
	b = append(b, `,"completed_at":`...)
	if s.done == 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, s.done, 10)
	}
	b = jsonscan.AppendQuoted(append(b, `,"status":`...), s.status)
	b = appendRawOrNull(append(b, `,"background":false,"error":`...), s.err)
	b = append(b, `,"incomplete_details":`...)
	if s.reason == "" {
		b = append(b, "null"...)
	} else {
		b = append(jsonscan.AppendQuoted(append(b, `{"reason":`...), s.reason), '}')
	}
	b = call.appendEcho(b, "instructions", "null")
	b = call.appendEcho(b, "max_output_tokens", "null")
	b = call.appendEcho(b, "max_tool_calls", "null")
	b = jsonscan.AppendQuoted(append(b, `,"model":`...), call.model)
	b = append(append(append(b, `,"output":[`...), s.output...), ']')
	b = call.appendEcho(b, "parallel_tool_calls", "true")
	b = call.appendEcho(b, "previous_response_id", "null")
	b = call.appendEcho(b, "prompt_cache_key", "null")
	b = call.appendEcho(b, "reasoning", `{"effort":null,"summary":null}`)
	b = call.appendEcho(b, "safety_identifier", "null")
	b = append(b, `,"service_tier":"default"`...)
	b = call.appendEcho(b, "store", "true")
	b = call.appendEcho(b, "temperature", "1")
	b = call.appendEcho(b, "text", `{"format":{"type":"text"}}`)
	b = call.appendEcho(b, "tool_choice", `"auto"`)
	b = call.appendEcho(b, "tools", "[]")
	b = call.appendEcho(b, "top_logprobs", "0")
	b = call.appendEcho(b, "top_p", "1")
	b = call.appendEcho(b, "presence_penalty", "0")
	b = call.appendEcho(b, "frequency_penalty", "0")
	b = call.appendEcho(b, "truncation", `"disabled"`)
	b = appendResponseUsage(append(b, `,"usage":`...), s.usage)
	b = append(b, `,"user":null`...)
	b = call.appendEcho(b, "metadata", "{}")
	return append(b, '}')
}

// appendRawOrNull appends JSON, or null if raw is empty.
func appendRawOrNull(b, raw []byte) []byte {
	if len(raw) == 0 {
		return append(b, "null"...)
	}
	return append(b, raw...)
}

// appendResponseUsage appends a response's usage. Like the upstream's, its input tokens
// include cached ones.
func appendResponseUsage(b []byte, u *Usage) []byte {
	if u == nil {
		return append(b, "null"...)
	}
	input, output := max(u.PromptTokens, 0), max(u.CompletionTokens, 0)
	b = strconv.AppendInt(append(b, `{"input_tokens":`...), input, 10)
	b = strconv.AppendInt(append(b, `,"input_tokens_details":{"cached_tokens":`...), max(u.CachedTokens, 0), 10)
	b = strconv.AppendInt(append(b, `,"cache_write_tokens":0},"output_tokens":`...), output, 10)
	b = strconv.AppendInt(append(b, `,"output_tokens_details":{"reasoning_tokens":`...), max(u.ReasoningTokens, 0), 10)
	b = strconv.AppendInt(append(b, `},"total_tokens":`...), input+output, 10)
	return append(b, '}')
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
	messageItem    = itemForm{"message", "msg_", "text", "output_text", "content_part", "output_text", `,"content_index":0`}
	refusalItem    = itemForm{"message", "msg_", "refusal", "refusal", "content_part", "refusal", `,"content_index":0`}
	summaryItem    = itemForm{"reasoning", "rs_", "text", "reasoning_summary_text", "reasoning_summary_part", "summary_text", `,"summary_index":0`}
	reasoningItem  = itemForm{"reasoning", "rs_", "text", "reasoning_text", "content_part", "reasoning_text", `,"content_index":0`}
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
func formOf(kind partKind, tool ToolKind, reasoningAs string) *itemForm {
	switch {
	case kind == partTool:
		return &callItems[tool]
	case kind == partRefusal:
		return &refusalItem
	case kind == partReason && reasoningAs == compat.ReasoningContent:
		return &reasoningItem
	case kind == partReason:
		return &summaryItem
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
	b = jsonscan.AppendQuoted(append(b, `{"id":`...), t.id)
	b = append(append(append(b, `,"type":"`...), t.form.name...), '"')
	if t.form == &compactionItem { // it has no status
		return append(t.appendSealed(b, compactionMark, call.env.reasoningStore()), '}')
	}
	if t.kind == partText || t.kind == partRefusal {
		b = append(b, `,"role":"assistant"`...)
	}
	b = append(append(append(b, `,"status":"`...), status...), '"')
	begun := status != statusInProgress
	switch t.kind {
	case partReason:
		b = append(b, `,"summary":[`...)
		if t.form == &reasoningItem {
			b = append(b, `],"content":[`...)
		}
		if begun {
			b = t.appendPart(b)
		}
		b = append(b, ']')
		if begun && call.encrypted {
			b = t.appendSealed(b, reasoningMark, call.env.reasoningStore())
		}
	case partTool:
		b = t.appendCall(b)
	default:
		b = append(b, `,"content":[`...)
		if begun {
			b = t.appendPart(b)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendPart appends the only part of the item.
func (t *responseItem) appendPart(b []byte) []byte {
	b = append(append(append(b, `{"type":"`...), t.form.partType...), `","`...)
	b = append(append(append(append(b, t.form.key...), `":"`...), t.text...), '"')
	if t.kind == partText {
		b = append(append(append(b, `,"annotations":[],"logprobs":[`...), t.probs...), ']')
	}
	return append(b, '}')
}

// appendSealed appends the item's text as encrypted_content, which clients return
// unchanged.
func (t *responseItem) appendSealed(b []byte, mark string, v reasoningStore) []byte {
	b = append(b, `,"encrypted_content":"`...)
	text := t.text
	if t.kind == partReason { // its text is also sent unencrypted, and is escaped
		text = []byte(jsonscan.Unescape(text))
	}
	return append(v.append(b, mark, text), '"')
}

// appendCall appends the members of a tool call.
func (t *responseItem) appendCall(b []byte) []byte {
	b = jsonscan.AppendQuoted(append(b, `,"call_id":`...), t.callID)
	switch t.tool.Kind {
	case ToolFunction, ToolCustom:
		b = jsonscan.AppendQuoted(append(b, `,"name":`...), t.tool.Name)
		if t.tool.Namespace != "" {
			b = jsonscan.AppendQuoted(append(b, `,"namespace":`...), t.tool.Namespace)
		}
		b = append(append(append(b, `,"`...), t.form.key...), `":"`...)
		return append(append(b, t.text...), '"')
	case ToolShell:
		b = append(b, `,"environment":null`...)
	}
	b = append(append(append(b, `,"`...), t.form.key...), `":`...)
	return append(b, t.action...)
}
