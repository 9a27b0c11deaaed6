package link

import (
	"errors"
	"net/http"
)

// Serve answers the one request on a stream and returns when both sides of the
// stream are done with. Its error says why the answer did not end cleanly.
func Serve(s Stream, h http.Handler) error {
	return errors.New("x")
}
