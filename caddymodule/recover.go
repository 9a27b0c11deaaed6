package caddymodule

import (
	"log/slog"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/connector/panics"
)

// recovered serves a request. After a panic, fail answers if the answer has not begun; else the
// connection is aborted, so that the answer does not look complete. net/http would log the value of
// the panic, which may be a secret.
func recovered(log *slog.Logger, w http.ResponseWriter, serve func(w http.ResponseWriter) error,
	fail func(w http.ResponseWriter)) error {
	answer := caddyhttp.NewResponseRecorder(w, nil, nil)
	defer func() {
		v := recover()
		if v != nil && v != http.ErrAbortHandler {
			panics.Caught(v).Log(log, "serving a request")
			if answer.Status() == 0 {
				fail(w)
				return
			}
		}
		if v != nil {
			panic(http.ErrAbortHandler)
		}
	}()
	return serve(answer)
}

// errCrashed is the text of the error after a panic.
const errCrashed = "the gateway failed to serve the request because of a defect; its log has the stack"

// failText answers after a panic with a line of text.
func failText(w http.ResponseWriter) { answerText(w, http.StatusInternalServerError, errCrashed) }

// failJSON answers after a panic as the management API does.
func failJSON(w http.ResponseWriter) {
	answerJSON(w, http.StatusInternalServerError, map[string]string{"error": errCrashed})
}
