package dialect

// responsesCall is a request in the responses dialect.
type responsesCall struct {
	translation
}

// Answer implements Call.
func (c *responsesCall) Answer(body []byte) ([]byte, Usage, *Error) {
	return encodeResponse(body, &c.reply)
}

// NewStream implements Call.
func (c *responsesCall) NewStream() Stream {
	return newAnswerStream(newResponsesEncoder(&c.reply, false), c.estimate)
}

var _ Call = (*responsesCall)(nil)
