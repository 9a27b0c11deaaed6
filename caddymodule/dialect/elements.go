package dialect

import "context"

// maxElements bounds what one request may hold: messages, input items, blocks
// of content, tools and calls together. Each costs much more than its few
// bytes, here and in the model server.
const maxElements = 100_000

// checkEvery is how many elements are read between two looks at whether the
// client is still there.
const checkEvery = 256

// elements counts what a request holds, and watches whether its client still
// wants it.
type elements struct {
	ctx context.Context
	n   int
	err *Error // why no more of the request is read
}

// add counts one more. An error of it stays: where a faulty element is only
// passed over, the request ends all the same.
func (e *elements) add() *Error {
	e.n++
	switch {
	case e.err != nil:
	case e.n > maxElements:
		e.err = tooManyElements()
	case e.n%checkEvery == 0:
		e.err = e.ended()
	}
	return e.err
}

// ended is an error if the request's context has ended.
func (e *elements) ended() *Error {
	if e.ctx != nil && e.ctx.Err() != nil {
		return abandoned()
	}
	return nil
}

// tooManyElements is the answer to a request of more than maxElements.
func tooManyElements() *Error {
	return invalid("", "too_many_elements", "The request has more than 100,000 messages, input items, content blocks, tools and tool calls together. "+
		"Send fewer: shorten or summarize the conversation, or split the request.")
}

// abandoned ends the work for a client that is gone; nothing of it is sent.
func abandoned() *Error {
	return &Error{Kind: KindTimeout, Message: "The request ended before it was read."}
}
