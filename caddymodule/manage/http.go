package manage

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/store"
)

// AdminPrefix is where Caddy's admin endpoint serves the management API.
const AdminPrefix = "/model_gateway"

// Handler returns the JSON API under prefix, for example "/model_gateway". The server that mounts it authenticates
// the caller and passes it by [WithCaller].
func (s *Service) Handler(prefix string) http.Handler { return http.StripPrefix(prefix, s.api) }

// newMux returns the JSON API.
func (s *Service) newMux() http.Handler {
	mux := http.NewServeMux()
	byPath := make(map[string]map[string]Operation)
	for _, o := range operations {
		if byPath[o.Path] == nil {
			byPath[o.Path] = make(map[string]Operation)
			mux.Handle(o.Path, s.methods(byPath[o.Path]))
		}
		byPath[o.Path][o.Method] = o
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, faultf(store.ErrNotFound, "unknown path %s", r.URL.Path))
	})
	return mux
}

// methods dispatches by method instead of the mux, so that a wrong method gets a JSON error.
func (s *Service) methods(byMethod map[string]Operation) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o, known := byMethod[r.Method]
		if !known {
			allow := strings.Join(slices.Sorted(maps.Keys(byMethod)), ", ")
			w.Header().Set("Allow", allow)
			s.fail(w, r, faultf(errMethod, "method %s is not allowed here; use %s", r.Method, allow))
			return
		}
		local := CallerFrom(r.Context()).Operator
		if err := s.Serving(); err != nil && !(local && o.About == OfEdge) {
			text := err.Error()
			if local && s.cluster != nil {
				text = strings.TrimSuffix(text+": "+s.cluster.Contact(s.cluster.Name()).Problem, ": ")
			}
			WriteError(w, StatusOf(err), text, err)
			return
		}
		err := cmp.Or(tokenMay(CallerFrom(r.Context()), o.Rights), s.may(r.Context(), o))
		if err == nil {
			err = s.Pace(r.Context(), r.Method)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		answer, err := o.serve(s, w, r)
		if u := (*store.Unconfirmed)(nil); errors.As(err, &u) {
			WriteJSON(w, http.StatusAccepted, UnconfirmedAnswer{Pending: u.Pending, Message: err.Error()})
			return
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if file, ok := answer.(download); ok {
			s.sendFile(w, r, file)
			return
		}
		WriteJSON(w, o.Status, answer)
	})
}

// fail responds with an error. It logs the text of a hidden one.
func (s *Service) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := Explain(err)
	if Hidden(err) && r.Context().Err() == nil { // otherwise the client has disconnected
		// Not the path itself: it may contain a pairing code.
		s.log.Error("management operation failed", "method", r.Method, "path", r.Pattern, "error", err)
	}
	if errors.Is(err, store.ErrUnavailable) && CallerFrom(r.Context()).Operator {
		text = err.Error()
	}
	WriteError(w, status, text, err)
}

// WriteError responds with an error: a text for users, and the code and the time to wait of err, if it has them.
func WriteError(w http.ResponseWriter, status int, text string, err error) {
	if wait := RetryAfter(err); wait != "" {
		w.Header().Set("Retry-After", wait)
	}
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

// UnconfirmedAnswer is the answer to a change that was made, but that not all gateways of the cluster have confirmed.
type UnconfirmedAnswer struct {
	// Confirmed is false.
	Confirmed bool `json:"confirmed"`
	// Pending are the gateways that may act on the state before the change.
	Pending []store.PendingEdge `json:"pending"`
	// Message is the text for users.
	Message string `json:"message"`
}

// WriteJSON sends a response. Responses are never cached: some contain secrets, and the others are soon outdated.
func WriteJSON(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(answer) // fails only if the client has gone
}
