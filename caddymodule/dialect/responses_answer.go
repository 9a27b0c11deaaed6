package dialect

// encodeResponse is the client's body for a whole answer of the upstream.
func encodeResponse(body []byte, call *reply) ([]byte, Usage, *Error) {
	r := newResponsesEncoder(call, true)
	o, told, err := encodeWhole(body, r, call.estimate)
	if err != nil {
		return nil, Usage{}, err
	}
	b := appendResponse(make([]byte, 0, len(r.output)+2048), r.id, call, r.conclude(o))
	r.keep(b)
	if !told {
		o.usage = Usage{}
	}
	return append(b, '\n'), o.usage, nil
}
