package dialect

import (
	"net/http"
	"net/url"
	"strings"
)

// OperationKind is the kind of a request, determined by method and path.
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

// Operation is the operation of a request. Its Dialect is valid even if Lookup fails.
type Operation struct {
	Kind    OperationKind
	Dialect Dialect
	ModelID string // of GetModel; may contain '/' and ':'

	// ResponseID is the id of the kept response for GetResponse, DeleteResponse
	// and ListInputItems.
	ResponseID string
}

// posts are the operations with method POST.
var posts = map[string]OperationKind{
	"/v1/chat/completions":       ChatCompletions,
	"/v1/completions":            Completions,
	"/v1/embeddings":             Embeddings,
	"/v1/messages":               CreateMessage,
	"/v1/messages/count_tokens":  CountTokens,
	"/v1/responses":              CreateResponse,
	"/v1/responses/input_tokens": CountInputTokens,
}

// The path prefixes of ids.
const (
	modelPrefix    = "/v1/models/"
	responsePrefix = "/v1/responses/"
)

// Lookup returns the operation of a request. escapedPath is the percent-encoded path
// (url.URL.EscapedPath), because a model id may contain an encoded '/'. HEAD is treated
// like GET.
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

// lookupResponse returns the operation on a kept response. rest is the path after
// responsePrefix. Only background responses can be canceled, which are not supported.
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

// lookupModel returns the operation GetModel with the model's id.
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

// taken returns the operation of a kind, or an error if the method is not supported.
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

// OfPath returns the dialect of answers to a path, even an unknown one. For /v1/models,
// it depends on the anthropic-version header.
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

// UpstreamPath returns the upstream's path for the operation, "" if it is not sent to an
// upstream.
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
