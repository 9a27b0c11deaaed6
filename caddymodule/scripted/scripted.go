// Package scripted is a model server without a model. It implements the OpenAI API
// like a small local server, to try a gateway on a machine without a model server.
// `caddy gateway up` uses it if it finds none. Every answer states that it is
// scripted.
//
// It serves GET /v1/models and POST /v1/chat/completions, streams token by token,
// honors max_tokens and stop, and calls a tool on demand. It stops when its client
// disconnects.
package scripted

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// ModelID is the name of the only model. Like llama-server, the server accepts any
// name in a request and returns this one.
const ModelID = "scripted"

// TokenDelay is the default duration of one token.
const TokenDelay = 20 * time.Millisecond

// maxBody is the maximum size of a request body.
const maxBody = 64 << 20

// model is the scripted model.
type model struct {
	delay   time.Duration // of each token
	created int64
}

// New returns a model server that takes tokenDelay for each token.
func New(tokenDelay time.Duration) http.Handler {
	m := &model{delay: tokenDelay, created: time.Now().Unix()}
	mux := http.NewServeMux()
	mux.Handle("GET /v1/models", handler(m.models))
	mux.Handle("POST /v1/chat/completions", handler(m.chat))
	mux.Handle("POST /v1/", handler(func(http.ResponseWriter, *http.Request) error {
		return invalid("", "The built-in scripted model answers chat only. Start a real model server for anything else.")
	}))
	return mux
}

// handler serves a request. It returns an *apiError, or any other error if the client
// has disconnected.
type handler func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP implements http.Handler.
func (serve handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e *apiError
	if !errors.As(serve(w, r), &e) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(object{"error": e}) // the client may have disconnected
}

func (m *model) models(w http.ResponseWriter, _ *http.Request) error {
	entry := object{"id": ModelID, "object": "model", "created": m.created, "owned_by": "postern"}
	return writeJSON(w, object{"object": "list", "data": []any{entry}})
}

// apiError is a 400 error in the format of the OpenAI API.
type apiError struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   string `json:"param,omitempty"`
}

func (e *apiError) Error() string { return e.Message }

// invalid returns an error about a parameter.
func invalid(param, message string) *apiError {
	return &apiError{Message: message, Type: "invalid_request_error", Param: param}
}

// writeJSON writes a JSON object.
func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

// decode reads a JSON request body into v.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(v); err != nil {
		return invalid("", "The request body is not valid: "+err.Error()+".")
	}
	return nil
}
