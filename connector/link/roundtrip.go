package link

import (
	"context"
	"errors"
	"net/http"
)

// RoundTripOptions are the optional parts of [RoundTrip].
type RoundTripOptions struct {
	// Done is called once, when the request no longer uses the stream: at the
	// end of the answer's body, at its Close, or when RoundTrip fails.
	Done func()
}

// RoundTrip sends r down a stream and reads the header of the answer.
func RoundTrip(ctx context.Context, s Stream, r *http.Request, o RoundTripOptions) (*http.Response, error) {
	return nil, errors.New("x")
}
