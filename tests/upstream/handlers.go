package upstream

import (
	"fmt"
	"net/http"
	"time"
)

// Answer is a handler with one whole answer.
func Answer(status int, contentType, body string) Handler {
	return func(x *Exchange) { x.Answer(status, contentType, body) }
}

// JSON is a handler with one whole JSON answer of status 200.
func JSON(body string) Handler { return Answer(http.StatusOK, "application/json", body) }

// Events is a handler that streams events and ends cleanly. Each string is one
// chunk and one write, whether or not it is a whole event.
func Events(chunks ...string) Handler {
	return func(x *Exchange) {
		x.Stream()
		for _, c := range chunks {
			x.Chunk(c)
			time.Sleep(time.Millisecond) // so that the writes are not read as one
		}
		x.End()
	}
}

// Echo answers with a chat completion whose content is the request body's
// length; the request itself is in Server.Requests.
func Echo(x *Exchange) {
	JSON(Completion(x.Request.Model, fmt.Sprintf("%d bytes", len(x.Request.Body))))(x)
}

// SlowTokens is a handler that streams a token every d until the client leaves, or until release is closed and
// it ends the answer.
func SlowTokens(d time.Duration, release <-chan struct{}) Handler {
	return func(x *Exchange) {
		x.Stream()
		x.Chunk(Role(x.Request.Model))
		for n := 1; ; n++ {
			select {
			case <-release:
				x.Chunk(Finish(x.Request.Model, "stop"))
				x.Chunk(Done)
				x.End()
				return
			case <-x.Gone():
				return
			case <-time.After(d):
				x.Chunk(Delta(x.Request.Model, fmt.Sprintf("token%d ", n)))
			}
		}
	}
}
