package dialect

// encodeResponse is the client's body for a whole answer of the upstream.
func encodeResponse(body []byte, call *reply) ([]byte, Usage, *Error) {
	if call.compact {
		return encodeCompaction(body, call)
	}
	r := newResponsesEncoder(call, true)
	o, err := encodeWhole(body, r, call)
	if err != nil {
		return nil, Usage{}, err
	}
	return r.whole(o)
}

// encodeCompaction is encodeResponse for an answer that is to be a compaction.
func encodeCompaction(body []byte, call *reply) ([]byte, Usage, *Error) {
	c := &compactionEncoder{responsesEncoder: *newResponsesEncoder(call, true)}
	o, err := encodeWhole(body, c, call)
	if err == nil {
		err = c.check(o)
	}
	if err != nil {
		return nil, Usage{}, err
	}
	c.putItem()
	return c.whole(o)
}

// whole is the body of a response that has ended.
func (r *responsesEncoder) whole(o outcome) ([]byte, Usage, *Error) {
	b := appendResponse(make([]byte, 0, len(r.output)+2048), r.id, r.call, r.conclude(o))
	r.keep(b)
	return append(b, '\n'), o.usage, nil
}
