package manage

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

// AdminPrefix is where Caddy's admin endpoint serves the management API.
const AdminPrefix = "/model_gateway"

// Handler returns the JSON API under prefix, for example "/model_gateway".
// It does not authenticate: the server that mounts it does, and passes the caller by
// [WithCaller].
func (s *Service) Handler(prefix string) http.Handler { return http.StripPrefix(prefix, s.api) }

// newMux returns the JSON API.
func (s *Service) newMux() http.Handler {
	mux := http.NewServeMux()
	for path, methods := range s.routes() {
		mux.Handle(path, s.methods(methods))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, faultf(store.ErrNotFound, "unknown path %s", r.URL.Path))
	})
	return mux
}

// methods dispatches by method. The mux does not, so that the response to a wrong
// method has the form of all errors.
func (s *Service) methods(byMethod map[string]route) http.Handler {
	allow := strings.Join(slices.Sorted(maps.Keys(byMethod)), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route, ok := byMethod[r.Method]
		if !ok {
			w.Header().Set("Allow", allow)
			s.fail(w, r, faultf(errMethod, "method %s is not allowed here; use %s", r.Method, allow))
			return
		}
		if err := tokenMay(CallerFrom(r.Context()), route.needs); err != nil {
			s.fail(w, r, err)
			return
		}
		answer, err := route.serve(w, r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if file, ok := answer.(download); ok {
			s.send(w, r, file)
			return
		}
		WriteJSON(w, route.status, answer)
	})
}

// fail responds with an error. The text of an internal one is only logged.
func (s *Service) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := StatusOf(err), err.Error()
	if throttled := (*signin.ThrottledError)(nil); errors.As(err, &throttled) {
		w.Header().Set("Retry-After", throttled.Seconds())
	}
	if status == http.StatusInternalServerError {
		if r.Context().Err() == nil { // otherwise the client has disconnected
			// Not the path itself: it may contain a pairing code.
			s.log.Error("management operation failed", "method", r.Method, "path", r.Pattern, "error", err)
		}
		text = "the gateway failed to do this; its log has the reason"
	}
	WriteError(w, status, text, err)
}

// WriteError responds with an error: a text for users, and the code of err, if it
// has one.
func WriteError(w http.ResponseWriter, status int, text string, err error) {
	code := ""
	if errors.Is(err, ErrUnconfirmed) {
		code = "confirmation_required"
	}
	WriteJSON(w, status, errorAnswer{text, code})
}

// errorAnswer is the answer to a request that failed.
type errorAnswer struct {
	// Error is the cause and the fix.
	Error string `json:"error"`
	// Code is "confirmation_required" if the session must be confirmed first.
	Code string `json:"code,omitempty"`
}

// WriteJSON sends a response. Responses are never cached: some contain secrets, and
// the others are soon outdated.
func WriteJSON(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(answer) // fails only if the client has gone
}
