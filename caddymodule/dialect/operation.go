package dialect

import (
	"net/http"
	"net/url"
	"strings"
)

// OperationKind is the kind of a request, determined by method and path.
type OperationKind uint8

// The operations, as listed in routes.
const (
	ChatCompletions OperationKind = iota + 1
	Completions
	Embeddings
	ListModels
	GetModel
	CreateMessage
	CountTokens
	CreateResponse
	CountInputTokens
	GetResponse
	DeleteResponse
	ListInputItems
	GetKey
)

// routes are the operations by path and method. In a path, "*" stands for an id. upstream is
// the upstream's path, "" if the operation is not sent to an upstream.
var routes = [...]struct{ method, path, upstream string }{
	ChatCompletions:  {"POST", "/v1/chat/completions", "/v1/chat/completions"},
	Completions:      {"POST", "/v1/completions", "/v1/completions"},
	Embeddings:       {"POST", "/v1/embeddings", "/v1/embeddings"},
	ListModels:       {"GET", "/v1/models", ""},
	GetModel:         {"GET", "/v1/models/*", ""},
	CreateMessage:    {"POST", "/v1/messages", "/v1/chat/completions"},
	CountTokens:      {"POST", "/v1/messages/count_tokens", ""},
	CreateResponse:   {"POST", "/v1/responses", "/v1/chat/completions"},
	CountInputTokens: {"POST", "/v1/responses/input_tokens", ""},
	GetResponse:      {"GET", "/v1/responses/*", ""},
	DeleteResponse:   {"DELETE", "/v1/responses/*", ""},
	ListInputItems:   {"GET", "/v1/responses/*/input_items", ""},
	GetKey:           {"GET", "/v1/key", ""},
}

// UpstreamPath returns the upstream's path for the operation, "" if it is not sent to an
// upstream.
func (op Operation) UpstreamPath() string { return routes[op.Kind].upstream }

// Operation is the operation of a request. Its Dialect is valid even if Lookup fails.
type Operation struct {
	Kind    OperationKind
	Dialect Dialect
	ModelID string // of GetModel; may contain '/' and ':'

	// ResponseID is the id of the kept response for GetResponse, DeleteResponse
	// and ListInputItems.
	ResponseID string
}

// Lookup returns the operation of a request. escapedPath is the percent-encoded path
// (url.URL.EscapedPath), because a model id may contain an encoded '/'. HEAD is treated
// like GET.
func Lookup(method, escapedPath string, h http.Header) (Operation, *Error) {
	op := Operation{Dialect: OfPath(escapedPath, h)}
	if escapedPath == "/v1/responses" && method == http.MethodGet && h.Get("Upgrade") != "" {
		return op, upgradeRequired()
	}
	path := "" // the first that matches
	var allow []string
	for kind, route := range routes {
		id, ok := idIn(route.path, escapedPath)
		if !ok || path != "" && path != route.path {
			continue
		}
		path = route.path
		if method == route.method || method == http.MethodHead && route.method == http.MethodGet {
			return op.of(OperationKind(kind), id), nil
		}
		allow = append(allow, route.method)
		if route.method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	if path != "" {
		return op, wrongMethod(method, escapedPath, strings.Join(allow, ", "))
	}
	if id, ok := idIn("/v1/responses/*/cancel", escapedPath); ok && method == http.MethodPost {
		return op, ResponseNotFound(id) // only background responses can be canceled
	}
	return op, unknownURL(method, escapedPath)
}

// of returns the operation of a kind.
func (op Operation) of(kind OperationKind, id string) Operation {
	op.Kind = kind
	if kind == GetModel {
		op.ModelID = id
	} else {
		op.ResponseID = id
	}
	return op
}

// idIn returns the id in a path that matches a pattern. Only the id of a model may contain
// '/', and be encoded.
func idIn(pattern, path string) (id string, ok bool) {
	head, tail, hasID := strings.Cut(pattern, "*")
	if !hasID {
		return "", path != "" && path == pattern
	}
	if id, ok = strings.CutPrefix(path, head); ok {
		id, ok = strings.CutSuffix(id, tail)
	}
	if head == "/v1/models/" {
		id, err := url.PathUnescape(id)
		return id, ok && id != "" && err == nil
	}
	// POST /v1/responses/compact is an endpoint that is not served.
	return id, ok && id != "" && id != "compact" && !strings.Contains(id, "/")
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
