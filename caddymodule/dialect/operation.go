package dialect

import (
	"net/http"
	"net/url"
	"strings"
)

// OperationKind is what a client wants done, by method and path.
type OperationKind uint8

// The operations.
const (
	ChatCompletions  OperationKind = iota + 1 // POST /v1/chat/completions
	Completions                               // POST /v1/completions
	Embeddings                                // POST /v1/embeddings
	ListModels                                // GET /v1/models
	GetModel                                  // GET /v1/models/{id}
	CreateMessage                             // POST /v1/messages
	CountTokens                               // POST /v1/messages/count_tokens
	CreateResponse                            // POST /v1/responses
	CountInputTokens                          // POST /v1/responses/input_tokens
	GetResponse                               // GET /v1/responses/{id}
	DeleteResponse                            // DELETE /v1/responses/{id}
	ListInputItems                            // GET /v1/responses/{id}/input_items
)

// Operation is one request's operation. Its Dialect is right even when Lookup
// fails: the dialect to answer in.
type Operation struct {
	Kind    OperationKind
	Dialect Dialect
	ModelID string // of GetModel; may hold '/' and ':'

	// ResponseID is the kept response that GetResponse, DeleteResponse and
	// ListInputItems are about.
	ResponseID string
}

// posts are the operations on paths without an id, but for ListModels.
var posts = map[string]OperationKind{
	"/v1/chat/completions":       ChatCompletions,
	"/v1/completions":            Completions,
	"/v1/embeddings":             Embeddings,
	"/v1/messages":               CreateMessage,
	"/v1/messages/count_tokens":  CountTokens,
	"/v1/responses":              CreateResponse,
	"/v1/responses/input_tokens": CountInputTokens,
}

// What stands before an id in a path.
const (
	modelPrefix    = "/v1/models/"
	responsePrefix = "/v1/responses/"
)

// Lookup finds the operation of a request. escapedPath is the path as it came,
// percent-encoded (url.URL.EscapedPath): a model's id may hold an encoded '/'.
// HEAD is taken where GET is.
func Lookup(method, escapedPath string, h http.Header) (Operation, *Error) {
	op := Operation{Dialect: OfPath(escapedPath, h)}
	if escapedPath == "/v1/responses" && method == http.MethodGet && h.Get("Upgrade") != "" {
		return op, upgradeRequired()
	}
	if kind, ok := posts[escapedPath]; ok {
		return op.taken(kind, method, http.MethodPost, escapedPath)
	}
	if escapedPath == "/v1/models" {
		return op.taken(ListModels, method, http.MethodGet, escapedPath)
	}
	if id, ok := strings.CutPrefix(escapedPath, modelPrefix); ok && id != "" {
		return lookupModel(op, method, escapedPath, id)
	}
	if rest, ok := strings.CutPrefix(escapedPath, responsePrefix); ok && rest != "" {
		return lookupResponse(op, method, escapedPath, rest)
	}
	return op, unknownURL(method, escapedPath)
}

// lookupResponse finds what is wanted of a kept response; rest is the path
// behind responsePrefix. Only responses made in the background can be cancelled,
// which are not supported.
func lookupResponse(op Operation, method, escapedPath, rest string) (Operation, *Error) {
	id, sub, _ := strings.Cut(rest, "/")
	op.ResponseID = id
	switch {
	case sub == "cancel" && method == http.MethodPost:
		return op, ResponseNotFound(id)
	case sub == "input_items":
		return op.taken(ListInputItems, method, http.MethodGet, escapedPath)
	case sub == "" && method == http.MethodDelete:
		op.Kind = DeleteResponse
		return op, nil
	case sub == "" && (method == http.MethodGet || method == http.MethodHead):
		op.Kind = GetResponse
		return op, nil
	case sub == "" && id != "compact": // an endpoint that is not served
		return op, wrongMethod(method, escapedPath, "GET, HEAD, DELETE")
	}
	return op, unknownURL(method, escapedPath)
}

// lookupModel finds the model that a path names.
func lookupModel(op Operation, method, escapedPath, escapedID string) (Operation, *Error) {
	id, err := url.PathUnescape(escapedID)
	if err != nil {
		return op, unknownURL(method, escapedPath)
	}
	op, fault := op.taken(GetModel, method, http.MethodGet, escapedPath)
	if fault == nil {
		op.ModelID = id
	}
	return op, fault
}

// taken is the operation of a kind, if the path takes the method.
func (op Operation) taken(kind OperationKind, method, want, path string) (Operation, *Error) {
	if method == want || method == http.MethodHead && want == http.MethodGet {
		op.Kind = kind
		return op, nil
	}
	allow := want
	if want == http.MethodGet {
		allow = "GET, HEAD"
	}
	return op, wrongMethod(method, path, allow)
}

// OfPath is the dialect to answer a path in, even when nothing is served
// there. /v1/models speaks both shapes: the request's anthropic-version header
// decides about errors and paging.
func OfPath(path string, h http.Header) Dialect {
	switch {
	case within(path, "/v1/messages"):
		return Messages
	case within(path, "/v1/responses"):
		return Responses
	case within(path, "/v1/models") && h.Get("Anthropic-Version") != "":
		return Messages
	}
	return Chat
}

// within reports whether path is root or below it.
func within(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}

// UpstreamPath is the path to send the operation to, "" if it is not for an
// upstream. The model server only ever sees chat.
func (op Operation) UpstreamPath() string {
	switch op.Kind {
	case ChatCompletions, CreateMessage, CreateResponse:
		return "/v1/chat/completions"
	case Completions:
		return "/v1/completions"
	case Embeddings:
		return "/v1/embeddings"
	}
	return ""
}
