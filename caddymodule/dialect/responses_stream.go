package dialect

import (
	"slices"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/sse"
)

// responsesEncoder writes an answer in the responses dialect: the events of a
// stream,
//
//	response.created response.in_progress
//	( output_item.added … output_item.done )*
//	response.completed | response.incomplete | error response.failed
//	[DONE]
//
// with response.in_progress anywhere in between as a ping. A quiet encoder writes the
// response object of a whole answer. The answer is buffered, because the last event
// repeats all items.
type responsesEncoder struct {
	eventBuffer
	call    *reply
	quiet   bool
	id      string // of the response
	created int64
	seq     int64
	index   int // of the open or next item
	item    responseItem
	raw     []byte          // unconverted arguments of the open call
	probs   []byte          // log probabilities for the next fill
	output  []byte          // the completed items, separated by commas
	items   []jsonscan.Span // the items in output
}

// newResponsesEncoder returns a new encoder.
func newResponsesEncoder(call *reply, quiet bool) encoder {
	r := responsesEncoder{call: call, quiet: quiet, id: call.env.NewID("resp_"), created: call.env.Now().Unix()}
	if call.compact {
		return &compactionEncoder{responsesEncoder: r}
	}
	return &r
}

// buffered implements encoder.
func (r *responsesEncoder) buffered() int64 {
	const itemSize = 16 // of a span
	return r.eventBuffer.buffered() + itemSize*int64(cap(r.items)) +
		int64(cap(r.output)+cap(r.item.text)+cap(r.item.probs)+cap(r.raw)+cap(r.probs))
}

// begin implements encoder.
func (r *responsesEncoder) begin() {
	if r.quiet {
		return
	}
	r.snapshot("created", responseState{status: statusInProgress})
	r.ping()
}

// ping implements encoder. It sends an event, because clients that wait for events
// ignore comments.
func (r *responsesEncoder) ping() {
	r.snapshot("in_progress", responseState{status: statusInProgress})
}

// snapshot writes an event with the response.
func (r *responsesEncoder) snapshot(name string, s responseState) {
	b := append(r.event(name), `,"response":`...)
	r.out = append(r.appendResponse(b, s), "}\n\n"...)
}

// event starts an event, up to its sequence number.
func (r *responsesEncoder) event(name string) []byte {
	r.seq++
	return jsonscan.Appendf(r.out, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%d", name,
		name, r.seq-1)
}

// itemEvent starts an event about a part of the open item.
func (r *responsesEncoder) itemEvent(name string) []byte {
	return jsonscan.Appendf(r.event(name), `,"item_id":%q,"output_index":%d%s`, r.item.id, r.index, r.item.form.index)
}

// wantsWhole implements encoder. Only the arguments of functions are streamed.
func (r *responsesEncoder) wantsWhole(name string) bool {
	return r.quiet || r.call.tool(name).Kind != ToolFunction
}

// open implements encoder.
func (r *responsesEncoder) open(kind partKind, id, name string) {
	r.item = responseItem{kind: kind, text: r.item.text[:0], probs: r.item.probs[:0]}
	r.raw = r.raw[:0]
	if kind == partTool {
		r.item.tool = r.call.tool(name)
		r.item.callID = r.call.callID(id, "call_")
	}
	r.item.form = formOf(kind, r.item.tool.Kind)
	r.item.id = r.call.env.NewID(r.item.form.prefix)
	if r.quiet || r.item.form.text == "" {
		return
	}
	r.itemSnapshot("output_item.added", statusInProgress)
	r.partEvent(".added")
}

// itemSnapshot writes an event with the open item.
func (r *responsesEncoder) itemSnapshot(name, status string) {
	b := jsonscan.Appendf(r.event(name), `,"output_index":%d,"item":`, r.index)
	r.out = append(r.item.append(b, status, r.call), "}\n\n"...)
}

// partEvent writes an event with the part of the open item, if it has one.
func (r *responsesEncoder) partEvent(suffix string) {
	if r.item.form.part != "" {
		b := append(r.itemEvent(r.item.form.part+suffix), `,"part":`...)
		r.out = append(r.item.appendPart(b), "}\n\n"...)
	}
}

// fill implements encoder.
func (r *responsesEncoder) fill(s string) {
	if r.item.kind == partTool && (r.quiet || r.item.tool.Kind != ToolFunction) {
		r.raw = append(r.raw, s...)
		return
	}
	r.put(s)
}

// put adds text to the open item and writes it.
func (r *responsesEncoder) put(s string) {
	from := len(r.item.text)
	r.item.text = jsonscan.AppendEscaped(r.item.text, s)
	if r.quiet {
		return
	}
	b := jsonscan.Appendf(r.itemEvent(r.item.form.text+".delta"), `,"delta":"%s"`, r.item.text[from:])
	r.out = append(r.item.appendLogprobs(b, r.probs), "}\n\n"...)
	r.probs = r.probs[:0]
}

// appendLogprobs appends the member logprobs, which text events require.
func (t *responseItem) appendLogprobs(b, probs []byte) []byte {
	if t.kind != partText {
		return b
	}
	return jsonscan.Appendf(b, `,"logprobs":[%s]`, probs)
}

// logprobs implements encoder.
func (r *responsesEncoder) logprobs(list []byte) {
	r.probs = append(r.probs[:0], list...)
	r.item.probs = joinLogprobs(r.item.probs, list)
}

// close implements encoder.
func (r *responsesEncoder) close(cut bool) {
	if r.item.kind == partTool {
		r.completeCall(cut)
	}
	status := statusCompleted
	if cut {
		status = statusIncomplete
	}
	if !r.quiet {
		r.closeEvents(status)
	}
	if r.index > 0 {
		r.output = append(r.output, ',')
	}
	from := len(r.output)
	r.output = r.item.append(r.output, status, r.call)
	r.items = append(r.items, jsonscan.Span{Start: from, End: len(r.output)})
	r.index++
	if cap(r.item.text) > sse.KeepBuffer {
		r.item.text = nil
	}
	if cap(r.item.probs) > sse.KeepBuffer {
		r.item.probs = nil
	}
}

// completeCall converts the open call's arguments to the format of its kind.
func (r *responsesEncoder) completeCall(cut bool) {
	raw := string(r.raw)
	switch r.item.tool.Kind {
	case ToolFunction:
		if !r.quiet {
			if len(r.item.text) == 0 {
				r.put("{}")
			}
			return
		}
		object, ok := normalArguments(raw)
		if !ok && cut && !jsonscan.Valid(r.raw) {
			object = r.raw // as in a stream
		}
		r.put(string(object))
	case ToolCustom:
		r.put(customInput(raw, cut))
	case ToolLocalShell, ToolShell:
		object, _ := normalArguments(raw)
		r.item.action = appendShellAction(nil, r.item.tool.Kind, object)
	case ToolApplyPatch:
		object, _ := normalArguments(raw)
		r.item.action = appendPatchOperation(nil, object)
	}
}

// closeEvents writes the events that close the open item.
func (r *responsesEncoder) closeEvents(status string) {
	if r.item.form.text == "" {
		r.itemSnapshot("output_item.added", statusInProgress)
		r.itemSnapshot("output_item.done", status)
		return
	}
	// These events repeat the text three times, and the last event once more. Grow
	// the buffer once to avoid copies.
	r.out = slices.Grow(r.out, 4*(len(r.item.text)+len(r.item.probs))+4<<10)
	b := r.itemEvent(r.item.form.text + ".done")
	if r.item.form == &callItems[ToolFunction] {
		b = jsonscan.Appendf(b, `,"name":%q`, r.item.tool.Name)
	}
	b = jsonscan.Appendf(b, `,"%s":"%s"`, r.item.form.key, r.item.text)
	r.out = append(r.item.appendLogprobs(b, r.item.probs), "}\n\n"...)
	r.partEvent(".done")
	r.itemSnapshot("output_item.done", status)
}

// finalState returns the final state of the response. An empty response gets an empty
// message, because its output must not be empty.
func (r *responsesEncoder) finalState(o outcome) responseState {
	if r.index == 0 {
		r.open(partText, "", "")
		r.close(o.finish.cut())
	}
	s := responseState{
		status: statusCompleted, output: r.output,
		usage: appendResponseUsage(make([]byte, 0, 256), o.usage), done: r.call.env.Now().Unix(),
	}
	switch o.finish {
	case finishLength:
		s.status, s.incomplete = statusIncomplete, []byte(`{"reason":"max_output_tokens"}`)
	case finishFilter:
		s.status, s.incomplete = statusIncomplete, []byte(`{"reason":"content_filter"}`)
	}
	return s
}

// finish implements encoder.
func (r *responsesEncoder) finish(o outcome) *Error {
	s := r.finalState(o)
	b, end := r.out, "\n"
	if r.quiet {
		b = slices.Grow(b, len(r.output)+2048)
	} else {
		b, end = append(r.event(s.status), `,"response":`...), "}\n\n"+doneEvent
	}
	from := len(b)
	b = r.appendResponse(b, s)
	r.keep(b[from:])
	r.out = append(b, end...)
	return nil
}

// keep keeps the response if the client requested it.
func (r *responsesEncoder) keep(body []byte) {
	if r.call.keep == nil {
		return
	}
	items := make([][]byte, len(r.items))
	for i, item := range r.items {
		items[i] = item.Bytes(r.output)
	}
	r.call.keep(r.id, body, items)
}

// abort implements encoder. Because clients differ, the error is sent both as an error
// event, flat and nested, and as a failed response. An open item stays open.
func (r *responsesEncoder) abort(e *Error) {
	e = e.rendered(Responses)
	failure := jsonscan.Appendf(nil, `"code":%q,"message":%q`, responsesCode(e), e.Message)
	r.out = jsonscan.Appendf(r.out, "event: error\ndata: {\"type\":\"error\",\"sequence_number\":%d,%s,\"param\":%n,"+
		"\"error\":{\"type\":%q,%s,\"param\":%n}}\n\n", r.seq, failure, e.Param, e.typeOfOpenAI(), failure, e.Param)
	r.seq++
	r.snapshot("failed", responseState{
		status: statusFailed, output: r.output,
		err: jsonscan.Appendf(nil, `{%s}`, failure),
	})
	r.out = append(r.out, doneEvent...)
}

// responsesCode returns an error's code in a stream, which is always one that clients know.
func responsesCode(e *Error) string {
	switch code := e.Kind.code; {
	case e.passes():
		return KindRateLimit.code
	case e.Code != "":
		return e.Code
	case e.Kind.openaiType == "server_error":
		return "server_error"
	case code != "":
		return code
	}
	return "invalid_prompt"
}

// isResponsesEvent implements Error.InStream. Codex does not retry after a status 429, but it
// does after a stream that fails with rate_limit_exceeded. After one with insufficient_quota it
// stops.
func (e *Error) isResponsesEvent() bool { return e.passes() || e.Kind == KindQuota }
