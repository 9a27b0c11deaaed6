package caddymodule

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/connector/panics"
)

// recovered serves a request. If serve panics before the answer has begun, fail answers. Later, the
// connection is aborted, so that the answer does not look complete. The panic does not reach net/http,
// which would log its value: that may be a secret.
func recovered(log *slog.Logger, w http.ResponseWriter, serve func(w http.ResponseWriter) error,
	fail func(w http.ResponseWriter),
) error {
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
const errCrashed = "the gateway failed to serve the request because of a bug; its log has the stack trace"

// failText answers after a panic with a line of text.
func failText(w http.ResponseWriter) { answerText(w, http.StatusInternalServerError, errCrashed) }

// failJSON answers after a panic as the management API does.
func failJSON(w http.ResponseWriter) {
	answerJSON(w, http.StatusInternalServerError, map[string]string{"error": errCrashed})
}

// answerText sends a line of text that must not be cached.
func answerText(w http.ResponseWriter, status int, line string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, line+"\n") // a failed write means that the client has disconnected
}

// answerJSON sends a small response that must not be cached.
func answerJSON(w http.ResponseWriter, status int, answer any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // a failed write means that the client has disconnected
}
