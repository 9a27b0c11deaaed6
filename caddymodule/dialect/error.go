package dialect

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Kind is a row of the error table: what went wrong, whatever the dialect.
type Kind uint8

// The kinds of errors.
const (
	KindInvalidRequest Kind = iota
	KindInvalidKey
	KindForbidden
	KindUnknownModel
	KindUnknownURL
	KindNotFound
	KindWrongMethod
	KindUpgradeRequired
	KindRequestTimeout
	KindTooLarge
	KindUnsupportedEncoding
	KindContextLength
	KindRateLimit
	KindOffline
	KindOverloaded
	KindUnreachable
	KindTimeout
	KindUpstream
	KindUpstreamAuth
	KindInternal
)

// kindRow is how a kind of error looks in each dialect.
type kindRow struct {
	status       int    // HTTP status
	openaiType   string // error.type of chat and responses
	code         string // error.code of chat and responses, "" is null
	messagesType string // error.type of messages
	messages     int    // HTTP status in messages, 0 if it is the same
}

// kinds is the error table of the dialects, by Kind.
var kinds = [...]kindRow{
	KindInvalidRequest:      {400, "invalid_request_error", "", "invalid_request_error", 0},
	KindInvalidKey:          {401, "invalid_request_error", "invalid_api_key", "authentication_error", 0},
	KindForbidden:           {403, "invalid_request_error", "forbidden", "permission_error", 0},
	KindUnknownModel:        {404, "invalid_request_error", "model_not_found", "not_found_error", 0},
	KindUnknownURL:          {404, "invalid_request_error", "unknown_url", "not_found_error", 0},
	KindNotFound:            {404, "invalid_request_error", "", "not_found_error", 0},
	KindWrongMethod:         {405, "invalid_request_error", "unknown_url", "invalid_request_error", 0},
	KindUpgradeRequired:     {426, "invalid_request_error", "upgrade_not_supported", "invalid_request_error", 0},
	KindRequestTimeout:      {408, "invalid_request_error", "request_timeout", "timeout_error", 0},
	KindTooLarge:            {413, "invalid_request_error", "request_too_large", "request_too_large", 0},
	KindUnsupportedEncoding: {415, "invalid_request_error", "unsupported_content_encoding", "invalid_request_error", 0},
	KindContextLength:       {400, "invalid_request_error", "context_length_exceeded", "invalid_request_error", 0},
	KindRateLimit:           {429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error", 0},
	KindOffline:             {503, "server_error", "deployment_offline", "overloaded_error", 0},
	KindOverloaded:          {503, "server_error", "overloaded", "overloaded_error", 529},
	KindUnreachable:         {502, "server_error", "upstream_unreachable", "api_error", 0},
	KindTimeout:             {504, "server_error", "upstream_timeout", "timeout_error", 0},
	KindUpstream:            {502, "server_error", "upstream_error", "api_error", 0},
	KindUpstreamAuth:        {502, "server_error", "upstream_auth", "api_error", 0},
	KindInternal:            {500, "server_error", "internal_error", "api_error", 0},
}

// Error is a failed request in no dialect yet. Body, HTTPStatus and Header
// render it as an HTTP answer, Event as the end of a stream that has begun.
type Error struct {
	Kind       Kind
	Code       string // replaces the kind's code if not empty
	Param      string // what field of the request is at fault, "" if none
	Message    string // for people: what happened, where, what to do
	RetryAfter int    // seconds, for the header and the message; 0 means none
	NoRetry    bool   // makes SDKs not try again: it cannot heal by itself
	Allow      string // methods for the Allow header of a 405

	// retry is how the upstream can answer the request all the same.
	retry Retry

	// messagesMessage replaces Message in the messages dialect, where
	// clients match words of some messages.
	messagesMessage string

	// details is JSON for error.details of the messages dialect; may be empty.
	details string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// waitWords are the words from which clients read how long to wait. A model
// server's own message may have them.
var waitWords = regexp.MustCompile(`(?i)try again in\s*\d+(\.\d+)?\s*(s|ms|seconds?)`)

// text is the message for a client. How long to wait stands in these words since
// clients read it from them, above all those that never see the header.
func (e *Error) text(d Dialect) string {
	message := e.Message
	if d == Messages && e.messagesMessage != "" {
		message = e.messagesMessage
	}
	if e.RetryAfter > 0 && !waitWords.MatchString(message) {
		message = strings.TrimRight(message, ". ") + ". Please try again in " + strconv.Itoa(e.RetryAfter) + "s."
	}
	return message
}

// InStream reports whether a streamed answer that has not begun is to begin for
// this error, instead of an HTTP status. Codex gives up for good on 429; it waits
// for a stream that fails with rate_limit_exceeded, for as long as the message
// says.
func (e *Error) InStream(d Dialect) bool { return d == Responses && e.passes() }

// passes reports whether the same request can succeed once its turn has come or
// a connector is back.
func (e *Error) passes() bool {
	return e.RetryAfter > 0 && (e.Kind == KindRateLimit || e.Kind == KindOffline)
}

// HTTPStatus is the status of the answer in a dialect.
func (e *Error) HTTPStatus(d Dialect) int {
	row := &kinds[e.Kind]
	if d == Messages && row.messages != 0 {
		return row.messages
	}
	return row.status
}

// Header is the error's own headers. Keys are canonical.
func (e *Error) Header() http.Header {
	h := make(http.Header, 2)
	if e.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.Itoa(e.RetryAfter)}
	}
	if e.NoRetry {
		h["X-Should-Retry"] = []string{"false"}
	}
	if e.Allow != "" {
		h["Allow"] = []string{e.Allow}
	}
	if e.Kind == KindUpgradeRequired {
		h["Upgrade"] = []string{"HTTP/1.1"} // RFC 9110 §15.5.22 demands the header
	}
	return h
}

// Body is the JSON body of the answer, ending in a line feed. All four keys of
// the OpenAI shape are there, as its SDKs' types demand; requestID goes into
// the Anthropic shape.
func (e *Error) Body(d Dialect, requestID string) []byte {
	b := make([]byte, 0, 160+len(e.Message))
	if d == Messages {
		b = e.appendMessages(b, requestID)
	} else {
		b = e.appendOpenAI(b, d)
	}
	return append(b, '\n')
}

// Event is the error as the last event of a stream in the chat or messages
// dialect: the status is gone, and nothing may follow, no [DONE] either.
func (e *Error) Event(d Dialect, requestID string) []byte {
	b := make([]byte, 0, 192+len(e.Message))
	if d == Messages {
		b = append(b, "event: error\ndata: "...)
		b = e.appendMessages(b, requestID)
	} else {
		b = append(b, "data: "...)
		b = e.appendOpenAI(b, d)
	}
	return append(b, "\n\n"...)
}

// appendOpenAI appends the error object of chat, responses and models.
func (e *Error) appendOpenAI(b []byte, d Dialect) []byte {
	row := &kinds[e.Kind]
	param := e.Param
	if e.Kind == KindContextLength && d == Responses {
		param = "input"
	}
	code := row.code
	if e.Code != "" {
		code = e.Code
	}
	b = jsonscan.AppendQuoted(append(b, `{"error":{"message":`...), e.text(d))
	b = jsonscan.AppendQuoted(append(b, `,"type":`...), row.openaiType)
	b = jsonscan.AppendQuotedOrNull(append(b, `,"param":`...), param)
	b = jsonscan.AppendQuotedOrNull(append(b, `,"code":`...), code)
	return append(b, "}}"...)
}

// appendMessages appends the error object of the messages dialect.
func (e *Error) appendMessages(b []byte, requestID string) []byte {
	b = jsonscan.AppendQuoted(append(b, `{"type":"error","error":{"type":`...), kinds[e.Kind].messagesType)
	b = jsonscan.AppendQuoted(append(b, `,"message":`...), e.text(Messages))
	if e.details != "" {
		b = append(append(b, `,"details":`...), e.details...)
	}
	b = jsonscan.AppendQuoted(append(b, `},"request_id":`...), requestID)
	return append(b, '}')
}
