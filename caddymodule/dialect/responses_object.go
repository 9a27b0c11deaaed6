package dialect

import (
	"strconv"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// responseState is what changes in a response object while it is made.
type responseState struct {
	status  string // in_progress, completed, incomplete or failed
	output  []byte // the items, with commas between them
	usage   *Usage // nil is null
	created int64  // Unix seconds
	done    int64  // likewise; 0 is null
	err     []byte // the error object, nil is null
	reason  string // of incomplete_details, "" is null
}

// appendResponse appends the response object. Every key is there, as clients'
// types and the Open Responses suite demand; that one also wants numbers, not
// null, for the sampling parameters.
func appendResponse(b []byte, id string, call *reply, s responseState) []byte {
	b = jsonscan.AppendQuoted(append(b, `{"id":`...), id)
	b = strconv.AppendInt(append(b, `,"object":"response","created_at":`...), s.created, 10)
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

// responseItem is an output item that is being made. Its texts are escaped, as
// they stand in JSON, without their quotes.
type responseItem struct {
	kind    partKind
	id      string
	callID  string
	tool    ToolName
	text    []byte // the text, or a call's arguments or input
	probs   []byte // of the text, as JSON with commas between them
	action  []byte // of a local_shell, shell or apply_patch call: its JSON
	content bool   // thinking is sent as content, not as a summary
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
	b = append(append(append(b, `,"type":"`...), t.typeName()...), '"')
	if t.kind == partCompaction { // it has no status
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
		if t.content {
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

// typeName is the item's type.
func (t *responseItem) typeName() string {
	switch t.kind {
	case partReason:
		return "reasoning"
	case partTool:
		return callTypes[t.tool.Kind].name
	case partCompaction:
		return "compaction"
	}
	return "message"
}

// appendPart appends the item's one part, with the text that it has.
func (t *responseItem) appendPart(b []byte) []byte {
	switch t.kind {
	case partReason:
		kind := "summary_text"
		if t.content {
			kind = "reasoning_text"
		}
		b = append(append(append(b, `{"type":"`...), kind...), `","text":"`...)
		return append(append(b, t.text...), `"}`...)
	case partRefusal:
		b = append(append(b, `{"type":"refusal","refusal":"`...), t.text...)
		return append(b, `"}`...)
	}
	b = append(append(b, `{"type":"output_text","text":"`...), t.text...)
	b = append(append(b, `","annotations":[],"logprobs":[`...), t.probs...)
	return append(b, "]}"...)
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
		b = append(append(append(b, `,"`...), callTypes[t.tool.Kind].content...), `":"`...)
		return append(append(b, t.text...), '"')
	case ToolShell:
		b = append(b, `,"environment":null`...)
	}
	b = append(append(append(b, `,"`...), callTypes[t.tool.Kind].content...), `":`...)
	return append(b, t.action...)
}

// callTypes are the kinds of tool calls: the item's type, the prefix of its
// id, and the key of what the call is to do.
var callTypes = [...]struct{ name, prefix, content string }{
	ToolFunction:   {"function_call", "fc_", "arguments"},
	ToolCustom:     {"custom_tool_call", "ctc_", "input"},
	ToolLocalShell: {"local_shell_call", "lsh_", "action"},
	ToolShell:      {"shell_call", "sh_", "action"},
	ToolApplyPatch: {"apply_patch_call", "apc_", "operation"},
}
