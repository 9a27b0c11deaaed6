package dialect

import (
	"bytes"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/sse"
)

// upstreamStream is the state of reading an upstream's event stream.
type upstreamStream struct {
	reader   sse.Reader
	info     *AnswerInfo
	usage    Usage
	gotUsage bool
	size     int64 // received bytes of text, thinking and arguments
	pieces   int64 // deltas with such bytes
	err      *Error
	ended    bool
}

// chunkReader reads the events of an upstream's stream.
type chunkReader interface {
	chunk(data []byte) // an event that may be a chunk of the answer
	done()             // [DONE]
}

// Done implements Stream.
func (u *upstreamStream) Done() bool { return u.ended }

// Err implements Stream.
func (u *upstreamStream) Err() *Error { return u.err }

// Usage implements Stream.
func (u *upstreamStream) Usage() (usage Usage, ok bool) {
	if !u.gotUsage {
		return Usage{CompletionTokens: tokensOf(u.size, u.pieces), Estimated: true}, false
	}
	return u.usage, true
}

// count counts a piece of the answer, of size bytes.
func (u *upstreamStream) count(size int64) {
	if size > 0 {
		u.size += size
		u.pieces++
	}
}

// read consumes the upstream's next bytes.
func (u *upstreamStream) read(p []byte, chunks chunkReader) {
	for u.reader.Feed(p); !u.ended && u.reader.Next(); {
		u.event(chunks)
	}
	u.checkReader()
}

// readLast processes the last event of the stream. A truncated event is ignored if the answer
// has ended: it is complete, or has already failed.
func (u *upstreamStream) readLast(chunks chunkReader, answerEnded bool) {
	if u.reader.Finish() && !(answerEnded && cutOff(u.reader.Data)) {
		u.event(chunks)
	}
	u.checkReader()
}

// cutOff reports whether data is a truncated event.
func cutOff(data []byte) bool { return !jsonscan.Valid(data) && !isDone(data) }

// isDone reports whether data is the event that ends a stream.
func isDone(data []byte) bool { return string(bytes.TrimSpace(data)) == "[DONE]" }

// event processes an event.
func (u *upstreamStream) event(chunks chunkReader) {
	switch name, data := u.reader.Name, u.reader.Data; {
	case string(name) == "error":
		u.abort(fromEvent(data))
	case len(data) == 0:
	case isDone(data):
		chunks.done()
	default:
		chunks.chunk(data)
	}
}

// checkReader ends the answer if the stream cannot be parsed.
func (u *upstreamStream) checkReader() {
	if err := u.reader.Err; err != nil {
		u.abort(unreadable(err))
	}
}

// abort ends the answer with an error.
func (u *upstreamStream) abort(e *Error) {
	if !u.ended {
		u.err, u.ended = e, true
	}
}
