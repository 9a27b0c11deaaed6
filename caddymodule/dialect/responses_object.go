package dialect

import (
	"strconv"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// responseState is what changes in a response object while it is made.
type responseState struct {
	status string // in_progress, completed, incomplete or failed
	output []byte // the items, with commas between them
	usage  *Usage // nil is null
	done   int64  // Unix seconds; 0 is null
	err    []byte // the error object, nil is null
	reason string // of incomplete_details, "" is null
}

// appendResponse appends the response object. Every key is there, as clients'
// types and the Open Responses suite demand; that one also wants numbers, not
// null, for the sampling parameters.
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

// appendRawOrNull appends JSON, or null if there is none.
func appendRawOrNull(b, raw []byte) []byte {
	if len(raw) == 0 {
		return append(b, "null"...)
	}
	return append(b, raw...)
}

// appendResponseUsage appends a response's usage, whose input tokens include
// those that came from the cache, as the upstream's do.
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

// itemForm is how a kind of output item looks: its type, the prefix of its id, the
// key of its text or action, and the names in the events about it.
type itemForm struct {
	name, prefix, key string
	text              string // events that bring the text, without ".delta" and ".done"; "" for an action, which is sent at once
	part              string // events that open and close its part, without ".added" and ".done"; "" for none
	partType          string
	index             string // the member for the part's place in the item
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

// formOf returns the form of a part of the answer; tool is the kind of a call.
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

// responseItem is an output item that is being made. Its texts are escaped, as
// they stand in JSON, without their quotes.
type responseItem struct {
	form   *itemForm
	kind   partKind
	id     string
	callID string
	tool   ToolName
	text   []byte // the text, or a call's arguments or input
	probs  []byte // of the text, as JSON with commas between them
	action []byte // of a local_shell, shell or apply_patch call: its JSON
}

// Statuses of items and responses.
const (
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
)

// append appends the item. While it is in progress it has no content yet.
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

// appendPart appends the item's one part, with the text that it has.
func (t *responseItem) appendPart(b []byte) []byte {
	b = append(append(append(b, `{"type":"`...), t.form.partType...), `","`...)
	b = append(append(append(append(b, t.form.key...), `":"`...), t.text...), '"')
	if t.kind == partText {
		b = append(append(append(b, `,"annotations":[],"logprobs":[`...), t.probs...), ']')
	}
	return append(b, '}')
}

// appendSealed appends the item's text in the form in which clients give it
// back without knowing what it is.
func (t *responseItem) appendSealed(b []byte, mark string, v reasoningStore) []byte {
	b = append(b, `,"encrypted_content":"`...)
	text := t.text
	if t.kind == partReason { // which is sent in the open too
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
