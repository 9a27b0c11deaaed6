package dialect

import (
	"slices"
	"strconv"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Body returns the upstream's body: the client's, spliced, with
//
//   - the upstream's model id in place of the public name, or before the first member;
//   - max_tokens in addition to a lone max_completion_tokens, which Ollama
//     silently ignores;
//   - the limits of LimitOutput and FitAnswer;
//   - the parameters of the deployment;
//   - stream_options.include_usage in a stream, for metering;
//   - developer messages as system messages, unless the deployment's model
//     supports the role.
//
// All other bytes are unchanged. Each call returns new Segments.
func (r *ChatRequest) Body(upstreamModel string) *Segments {
	e := append(append(make(edits, 0, 4+len(r.folds)+len(r.parameters)), r.folds...), r.parameters...)
	model := r.fields[fieldModel]
	name := jsonscan.AppendQuoted(make([]byte, 0, len(upstreamModel)+2), upstreamModel)
	if model.key == model.value { // the client named none
		name = slices.Concat([]byte(`"model":`), name, []byte(","))
	}
	e.add(model.value.Start, model.value.End, name)
	if r.output > 0 || r.room > 0 {
		r.limitOutput(&e)
	} else {
		r.repeatLimit(&e)
	}
	if r.Stream {
		r.askForUsage(&e)
	}
	return e.segments(r.body)
}

// repeatLimit adds max_tokens to a lone max_completion_tokens.
func (r *ChatRequest) repeatLimit(e *edits) {
	limit := r.raw(fieldMaxCompletionTokens)
	if limit == nil || r.raw(fieldMaxTokens) != nil {
		return
	}
	if old := r.fields[fieldMaxTokens]; old.found() { // null
		e.add(old.value.Start, old.value.End, limit)
		return
	}
	at := r.fields[fieldMaxCompletionTokens].key.Start
	text := append(make([]byte, 0, len(limit)+14), `"max_tokens":`...)
	e.add(at, at, append(append(text, limit...), ','))
}

// OutputLimit implements Call. The client's limit is for each answer.
func (r *ChatRequest) OutputLimit() int64 {
	return max(Lowest(min(r.answerLimit(), maxTokens)*r.answers, r.output), 0)
}

// answerLimit returns the client's limit of each answer. Of several, a model server may use the
// highest, and some take 0 for no limit.
func (r *ChatRequest) answerLimit() (limit int64) {
	if r.forced || r.raw(fieldMaxTokens) == nil && r.raw(fieldMaxCompletionTokens) == nil {
		return 0 // replaced, or others, which few servers know
	}
	for f := fieldMaxTokens; f < fieldCount; f++ {
		if raw := r.raw(f); raw != nil {
			n, _ := jsonscan.Integer(raw)
			if n < 1 {
				return 0
			}
			limit = max(limit, n)
		}
	}
	return limit
}

// LimitOutput implements Call.
func (r *ChatRequest) LimitOutput(n int64) {
	if r.generates() {
		r.output = Lowest(r.output, n)
	}
}

// AnswerLimit implements Call.
func (r *ChatRequest) AnswerLimit() (limit int64) {
	for f := fieldMaxTokens; f < fieldCount && !r.forced; f++ {
		n, _ := jsonscan.Integer(r.raw(f))
		limit = max(limit, n)
	}
	return Lowest(limit, r.output/r.answers)
}

// FitAnswer implements Call.
func (r *ChatRequest) FitAnswer(n int64) { r.room = n }

// limitOutput lowers all limits of an answer, or replaces them, and sets max_tokens. The answers share the limit.
// 0 is no limit for some servers, so it becomes the limit.
func (r *ChatRequest) limitOutput(e *edits) {
	allowed := r.room
	if r.output > 0 {
		allowed = Lowest(max(r.output/r.answers, 1), r.room)
	}
	lowest := allowed
	for _, limit := range r.fields[fieldMaxTokens:] {
		n, ok := jsonscan.Integer(limit.value.Bytes(r.body))
		switch {
		case !limit.found():
		case ok && n > 0 && n <= allowed && !r.forced:
			lowest = min(lowest, n)
		default:
			e.add(limit.value.Start, limit.value.End, strconv.AppendInt(nil, allowed, 10))
		}
	}
	if !r.fields[fieldMaxTokens].found() {
		at := r.fields[fieldModel].key.Start
		e.add(at, at, append(strconv.AppendInt([]byte(`"max_tokens":`), lowest, 10), ','))
	}
}

// askForUsage makes the upstream send usage at the end of the stream.
func (r *ChatRequest) askForUsage(e *edits) {
	options := r.fields[fieldStreamOptions]
	switch {
	case r.usageOption.found():
		e.add(r.usageOption.value.Start, r.usageOption.value.End, []byte("true"))
	case !options.found():
		at := r.fields[fieldStream].value.End
		e.add(at, at, []byte(`,"stream_options":{"include_usage":true}`))
	case r.raw(fieldStreamOptions) == nil: // null
		e.add(options.value.Start, options.value.End, []byte(`{"include_usage":true}`))
	default:
		text := []byte(`"include_usage":true`)
		if r.hasStreamOptions {
			text = append(text, ',')
		}
		at := options.value.Start + 1
		e.add(at, at, text)
	}
}
