// Package scripted is a model server without a model. It speaks the OpenAI API
// as a small local server would, so that a gateway can be tried on a machine
// that runs no model server: `caddy gateway up` uses it when it finds none. It
// never passes for a real model; every text it writes says what it is.
//
// It serves GET /v1/models, POST /v1/chat/completions, POST /v1/completions and
// POST /v1/embeddings, streams token by token, honours max_tokens and stop, and
// calls a tool on demand. It stops as soon as its client is gone.
package scripted

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// ModelID is the name of the only model. The server answers whatever name a
// request asks for, as llama-server does, and always returns this one.
const ModelID = "scripted"

// maxBody is the largest request body that is read.
const maxBody = 64 << 20

// Options configures a [Model]. The zero value works.
type Options struct {
	// TokenDelay is the time that one token takes. Default: 20ms. Negative: none.
	TokenDelay time.Duration
	// Now is the clock for the `created` fields. Default: time.Now.
	Now func() time.Time
}

// Model is the scripted model server, an http.Handler. Safe for concurrent use.
type Model struct {
	delay   time.Duration
	now     func() time.Time
	created int64
	mux     *http.ServeMux
}

// New returns a model server.
func New(o Options) *Model {
	if o.TokenDelay == 0 {
		o.TokenDelay = 20 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Model{delay: o.TokenDelay, now: o.Now, created: o.Now().Unix(), mux: http.NewServeMux()}
	m.handle(http.MethodGet, "/v1/models", m.models)
	m.handle(http.MethodGet, "/v1/models/{id}", m.model)
	m.handle(http.MethodPost, "/v1/chat/completions", m.chat)
	m.handle(http.MethodPost, "/v1/completions", m.complete)
	m.handle(http.MethodPost, "/v1/embeddings", m.embed)
	m.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, &apiError{status: http.StatusNotFound, Message: "There is nothing at " + r.Method + " " + r.URL.Path + "."})
	})
	return m
}

// handle serves one path with one method and answers the others with 405.
func (m *Model) handle(method, path string, f func(http.ResponseWriter, *http.Request) error) {
	m.mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, r *http.Request) {
		if err := f(w, r); err != nil {
			fail(w, err)
		}
	})
	m.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", method)
		fail(w, &apiError{status: http.StatusMethodNotAllowed, Message: "Use " + method + " for " + r.URL.Path + "."})
	})
}

// ServeHTTP implements http.Handler.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mux.ServeHTTP(w, r)
}

type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func (m *Model) object() modelObject {
	return modelObject{ID: ModelID, Object: "model", Created: m.created, OwnedBy: "postern"}
}

func (m *Model) models(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, map[string]any{"object": "list", "data": []modelObject{m.object()}})
}

func (m *Model) model(w http.ResponseWriter, r *http.Request) error {
	if id := r.PathValue("id"); id != ModelID {
		return &apiError{
			status: http.StatusNotFound, Message: fmt.Sprintf("There is no model %q; this server has %q only.", id, ModelID),
			Param: "model", Code: "model_not_found",
		}
	}
	return writeJSON(w, m.object())
}

// apiError is an error as the OpenAI API shows it.
type apiError struct {
	status  int
	Message string
	Param   string
	Code    string
}

func (e *apiError) Error() string { return e.Message }

// invalid is a 400 about one parameter.
func invalid(param, message string) error {
	return &apiError{status: http.StatusBadRequest, Message: message, Param: param}
}

// fail writes an error that was met before the answer began.
func fail(w http.ResponseWriter, err error) {
	e, ok := err.(*apiError)
	if !ok {
		return // the client is gone: nothing can be written to it
	}
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	body, err := json.Marshal(map[string]any{"error": map[string]any{
		"message": e.Message, "type": "invalid_request_error", "param": orNull(e.Param), "code": orNull(e.Code),
	}})
	if err != nil {
		body = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_, _ = w.Write(body) // the client may be gone
}

// writeJSON writes a JSON object. Its error means that the client is gone.
func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(body)
	return err
}

// decode reads a JSON request body into v.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(v)
	if err == nil {
		return nil
	}
	switch e := err.(type) {
	case *http.MaxBytesError:
		return &apiError{status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("The request body is larger than %d bytes.", e.Limit)}
	case *json.UnmarshalTypeError:
		// The field's path begins with the Go type if that is an embedded one.
		field := strings.TrimPrefix(e.Field, "sampling.")
		if field == "" {
			return invalid("", fmt.Sprintf("The request body must be a JSON object, not %s.", e.Value))
		}
		return invalid(field, fmt.Sprintf("%s must not be a JSON %s.", field, e.Value))
	default:
		return invalid("", "The request body is not the JSON object that was expected: "+err.Error()+".")
	}
}

// newID returns an id like the ones of the real API.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

var _ http.Handler = (*Model)(nil)
