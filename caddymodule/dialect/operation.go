package dialect

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Dialect is the API that a client uses. Its value is the name in logs and metrics.
type Dialect string

// The dialects.
const (
	Chat      Dialect = "chat"      // OpenAI chat completions, completions, embeddings, models
	Responses Dialect = "responses" // OpenAI responses
	Messages  Dialect = "messages"  // Anthropic messages
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
	ListPaths
	Rerank // the first of the media operations
	Reranking
	Score
	Transcription
	AudioTranslation
	Speech
	Voices
	ImageGeneration
	ImageEdit // the last one
	SpeechModels
	CancelResponse // never succeeds, and is not in the list
)

// isMedia reports whether an operation is of rerank, audio or images: its answer passes as it comes. See [MediaCall].
func isMedia(kind OperationKind) bool { return Rerank <= kind && kind <= ImageEdit }

// route describes an operation. In a path, "*" stands for an id.
type route struct {
	about        string // a line for people, in GET /v1
	method, path string
	name         string // in the activity: the path below /v1, unless several operations have it
	upstream     string // the upstream's path, "" if the operation is not sent to an upstream

	// readHead implements ReadHead: it finds the model. It is nil if the operation is not about a model.
	readHead func(op Operation, body []byte, env *Env) (Head, *Error)
}

// modelsPath is the path of the list of models, which several dialects share.
const modelsPath = "/v1/models"

// The paths of upstreams.
const (
	chatPath       = "/v1/chat/completions"
	textPath       = "/v1/completions"
	embeddingsPath = "/v1/embeddings"

	rerankPath         = "/v1/rerank"
	transcriptionsPath = "/v1/audio/transcriptions"
	speechPath         = "/v1/audio/speech"
	voicesPath         = "/v1/audio/voices"
	imagesPath         = "/v1/images/generations"
)

// routes are the operations.
var routes = [...]route{
	ChatCompletions: {"a chat completion (OpenAI)", "POST", chatPath, "chat/completions", chatPath, readChatHead},
	Completions:     {"a completion of a text (OpenAI)", "POST", textPath, "completions", textPath, readChatHead},
	Embeddings:      {"vectors of texts (OpenAI)", "POST", embeddingsPath, "embeddings", embeddingsPath, readChatHead},
	ListModels:      {"the models that the key may use", "GET", modelsPath, "models", "", nil},
	GetModel:        {"one model", "GET", modelsPath + "/*", "models/get", "", nil},

	CreateMessage: {"a message (Anthropic)", "POST", "/v1/messages", "messages", chatPath, readMessagesHead},
	CountTokens: {
		"a count of tokens",
		"POST", "/v1/messages/count_tokens", "messages/count_tokens", "", readMessagesHead,
	},

	CreateResponse: {"a response (OpenAI)", "POST", "/v1/responses", "responses", chatPath, readResponsesHead},
	CountInputTokens: {
		"a count of tokens",
		"POST", "/v1/responses/input_tokens", "responses/input_tokens", "", readResponsesHead,
	},
	GetResponse:    {"a stored response", "GET", "/v1/responses/*", "responses/get", "", nil},
	DeleteResponse: {"deletes a stored response", "DELETE", "/v1/responses/*", "responses/delete", "", nil},
	ListInputItems: {"a stored response's input", "GET", "/v1/responses/*/input_items", "responses/input_items", "", nil},

	GetKey:    {"the limits and the usage of the key", "GET", "/v1/key", "key", "", nil},
	ListPaths: {"this list", "GET", "/v1", "paths", "", nil},

	Rerank:    {"documents by relevance", "POST", rerankPath, "rerank", rerankPath, media("")},
	Reranking: {"the same", "POST", "/v1/reranking", "reranking", rerankPath, media("")},
	Score:     {"how similar texts are", "POST", "/v1/score", "score", "/v1/score", media("")},
	Transcription: {
		"the text of a recording",
		"POST", transcriptionsPath, "audio/transcriptions", transcriptionsPath, media(Seconds),
	},
	AudioTranslation: {
		"the text of a recording in English",
		"POST", "/v1/audio/translations", "audio/translations", "/v1/audio/translations", media(Seconds),
	},
	Speech: {"a text spoken", "POST", speechPath, "audio/speech", speechPath, media(Characters)},
	Voices: {"the voices of a model: ?model=", "GET", voicesPath, "audio/voices", voicesPath, media("")},
	ImageGeneration: {
		"images from a text",
		"POST", imagesPath, "images/generations", imagesPath, media(Images),
	},
	ImageEdit: {
		"images from others", "POST", "/v1/images/edits", "images/edits", "/v1/images/edits", media(Images),
	},
	SpeechModels: {"the models for speech that the key may use", "GET", "/v1/audio/models", "audio/models", "", nil},

	CancelResponse: {"", "POST", "/v1/responses/*/cancel", "responses/cancel", "", nil},
}

// PathsList returns the body of GET /v1: all operations, and the address of a page for people with a key, which may be
// empty.
func PathsList(page string) []byte {
	b := []byte(`{"object":"list","data":[`)
	for i, r := range routes[1:CancelResponse] {
		if i > 0 {
			b = append(b, ',')
		}
		path := strings.Replace(r.path, "*", "{id}", 1)
		b = jsonscan.Appendf(b, `{"method":%q,"path":%q,"description":%q}`, r.method, path, r.about)
	}
	return jsonscan.Appendf(b, `],"page":%n}`+"\n", page)
}

// Name returns the operation's name in the activity, "" if Lookup has failed.
func (op Operation) Name() string {
	if op == Judging {
		return "messages/safeguards"
	}
	return routes[op.Kind].name
}

// RequestLine returns the method and the path of the operation with a name in the activity, "" for other names.
func RequestLine(name string) string {
	for _, r := range routes {
		if r.name == name && name != "" {
			return r.method + " " + strings.Replace(r.path, "*", "{id}", 1)
		}
	}
	return ""
}

// Judging is the gateway's own request about the tool calls of an answer.
var Judging = Operation{Kind: ChatCompletions, Dialect: Messages}

// UpstreamPath returns the upstream's path for the operation, "" if it is not sent to an
// upstream.
func (op Operation) UpstreamPath() string { return routes[op.Kind].upstream }

// IsChat reports whether the upstream receives a chat completion.
func (op Operation) IsChat() bool { return op.UpstreamPath() == chatPath }

// Generates reports whether the operation generates text, or counts what it would read.
func (op Operation) Generates() bool {
	return routes[op.Kind].readHead != nil && op.Kind != Embeddings && !isMedia(op.Kind)
}

// UpstreamMethod returns the method of the upstream's request.
func (op Operation) UpstreamMethod() string { return routes[op.Kind].method }

// GenAI returns the operation's name in OpenTelemetry's semantic conventions, which allow other names, too. It is "" if
// the operation is not sent to an upstream.
func (op Operation) GenAI() string {
	switch path := op.UpstreamPath(); path {
	case "":
		return ""
	case chatPath:
		return "chat"
	case textPath:
		return "text_completion"
	}
	return strings.ReplaceAll(routes[op.Kind].name, "/", "_")
}

// Operation is the operation of a request. Its Dialect is valid even if Lookup fails.
type Operation struct {
	Kind    OperationKind
	Dialect Dialect
	ID      string // in the path: of a model, which may contain '/' and ':', or of a kept response
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
	for kind := range routes {
		route := &routes[kind]
		id, ok := idIn(route.path, escapedPath)
		if !ok || path != "" && path != route.path {
			continue
		}
		path = route.path
		if method == route.method || method == http.MethodHead && route.method == http.MethodGet {
			op.Kind, op.ID = OperationKind(kind), id
			return op, nil
		}
		allow = append(allow, route.method)
		if route.method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	if path != "" {
		return op, wrongMethod(method, escapedPath, strings.Join(allow, ", "))
	}
	return op, unknownURL(method, escapedPath, op.Dialect)
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
	if head == modelsPath+"/" {
		id, err := url.PathUnescape(id)
		return id, ok && id != "" && err == nil
	}
	// POST /v1/responses/compact is an endpoint that is not served.
	return id, ok && id != "" && id != "compact" && !strings.Contains(id, "/")
}

// OfPath returns the dialect of answers to a path, even an unknown one. For /v1/models,
// it depends on a header.
func OfPath(path string, h http.Header) Dialect {
	ofModels := within(path, modelsPath)
	for i := range formats {
		f := &formats[i]
		if f.root != "" && within(path, f.root) || ofModels && f.header != "" && h.Get(f.header) != "" {
			return f.dialect
		}
	}
	return Chat
}

// within reports whether path is root or below it.
func within(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}

// format describes a dialect, except for its requests and answers, which have files of their own.
type format struct {
	dialect Dialect
	root    string // the path of its operations; "": all other paths
	header  string // marks the clients that expect the dialect below modelsPath; "": none
	pages   bool   // the list of models has pages

	// Errors.
	content     string // the field with the conversation
	field       string // precedes a text about a field; %s is its path
	value       string // precedes a text about an invalid value; %s is its path
	element     func(path string, index int) string
	missing     func(path string) *Error // the error for a missing field
	wrongType   func(path, want string, raw []byte) *Error
	statuses    map[*Kind]int // instead of those of the kinds
	appendError func(b []byte, rendered *Error, requestID string) []byte
	inStream    func(e *Error) bool // implements Error.InStream; nil: never

	// Headers about limits: rate adds those of requests, and of each kind in tokens.
	rate   func(h http.Header, kind string, a *Allowance, now time.Time)
	tokens []string

	// Translation, which chat does not need.
	request    []string // the names of a request's members that are read or ignored; others are named, see drop
	fields     []string // those of inner members that its reader uses
	encoder    func(r *reply, quiet bool) encoder
	callID     func(id string) string // a valid id of a tool call
	estimates  bool                   // a stream opens with the estimated tokens of the prompt
	tokenCount string                 // the answer to a request that counts tokens
}

// formats contains a row for each dialect.
var formats = [...]format{
	{
		dialect: Chat,
		content: "messages", appendError: appendOpenAI,
		rate: rateOfOpenAI, tokens: []string{"Tokens"},
	},
	{
		dialect: Responses, root: "/v1/responses",
		content: "input", value: "Invalid value for %s: ",
		element: element, missing: missing, wrongType: wrongType,
		appendError: appendOpenAI, inStream: (*Error).isResponsesEvent,
		rate: rateOfOpenAI, tokens: []string{"Tokens"},
		request: responsesRequest, fields: responsesFields, encoder: newResponsesEncoder, callID: responsesID,
		tokenCount: `{"object":"response.input_tokens","input_tokens":%d}`,
	},
	{
		dialect: Messages, root: "/v1/messages", header: "Anthropic-Version", pages: true,
		content: "messages", field: "%s: ", value: "%s: ",
		element: dottedElement, missing: messagesMissing, wrongType: messagesWrongType,
		statuses: map[*Kind]int{KindOverloaded: 529}, appendError: appendMessagesError,
		rate: rateOfAnthropic, tokens: []string{"Tokens", "Input-Tokens", "Output-Tokens"}, // one limit is for all
		request: messagesRequest, fields: messagesFields, encoder: newMessagesEncoder, callID: messagesID, estimates: true,
		tokenCount: `{"input_tokens":%d}`,
	},
}

// format returns the format of a dialect.
func (d Dialect) format() *format {
	for i := range formats {
		if formats[i].dialect == d {
			return &formats[i]
		}
	}
	return &formats[0] // before Lookup
}

// Estimates reports whether streams of the dialect open with the estimated tokens of the prompt.
func (d Dialect) Estimates() bool { return d.format().estimates }
