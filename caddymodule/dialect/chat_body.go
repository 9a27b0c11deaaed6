package dialect

// Body is the upstream's body: the client's, spliced, with
//
//   - the upstream's model id in place of the public name;
//   - max_tokens beside max_completion_tokens if that comes alone, as Ollama
//     knows only the former and ignores the latter without a word;
//   - stream_options.include_usage in a stream, so that it can be metered;
//   - the developer's messages as the system's, unless the deployment's model
//     knows that role.
//
// All else is the client's bytes. Each call makes new Segments.
func (r *ChatRequest) Body(upstreamModel string) *Segments {
	e := r.commonEdits(upstreamModel)
	if r.Stream {
		r.askForUsage(&e)
	}
	return e.segments(r.body)
}

// WholeBody is Body for an answer that is no stream, whatever the client
// wants.
func (r *ChatRequest) WholeBody(upstreamModel string) *Segments {
	e := r.commonEdits(upstreamModel)
	if r.raw(fieldStream) != nil {
		value := r.fields[fieldStream].value
		e.add(value.start, value.end, []byte("false"))
	}
	if r.raw(fieldStreamOptions) != nil { // allowed in a stream only
		value := r.fields[fieldStreamOptions].value
		e.add(value.start, value.end, []byte("null"))
	}
	return e.segments(r.body)
}

// commonEdits are the edits that have nothing to do with streams.
func (r *ChatRequest) commonEdits(upstreamModel string) edits {
	folds := r.folds()
	e := append(make(edits, 0, 4+len(folds)), folds...)
	model := r.fields[fieldModel].value
	e.add(model.start, model.end, appendQuoted(make([]byte, 0, len(upstreamModel)+2), upstreamModel))

	limit := r.raw(fieldMaxCompletionTokens)
	if limit == nil || r.raw(fieldMaxTokens) != nil {
		return e
	}
	if old := r.fields[fieldMaxTokens]; old.found() { // null
		e.add(old.value.start, old.value.end, limit)
		return e
	}
	at := r.fields[fieldMaxCompletionTokens].key.start
	text := append(make([]byte, 0, len(limit)+14), `"max_tokens":`...)
	e.add(at, at, append(append(text, limit...), ','))
	return e
}

// askForUsage makes the upstream send usage at the end of the stream.
func (r *ChatRequest) askForUsage(e *edits) {
	options := r.fields[fieldStreamOptions]
	switch {
	case r.usage.found():
		e.add(r.usage.value.start, r.usage.value.end, []byte("true"))
	case !options.found():
		at := r.fields[fieldStream].value.end
		e.add(at, at, []byte(`,"stream_options":{"include_usage":true}`))
	case r.raw(fieldStreamOptions) == nil: // null
		e.add(options.value.start, options.value.end, []byte(`{"include_usage":true}`))
	default:
		text := []byte(`"include_usage":true`)
		if r.options {
			text = append(text, ',')
		}
		at := options.value.start + 1
		e.add(at, at, text)
	}
}
