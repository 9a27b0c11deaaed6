package dialect

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Kind is the kind of an error, with its form in each dialect.
type Kind struct {
	status       int    // HTTP status
	openaiType   string // error.type of chat and responses
	code         string // error.code of chat and responses, "" is null
	messagesType string // error.type of messages
	messages     int    // HTTP status in messages, 0 if it is the same as status
	class        Class
}

// Code returns the code of errors of the kind, which is "" for some that the caller causes.
func (k *Kind) Code() string { return k.code }

// Class is the class of an error: whose fault it is.
type Class string

// The classes of errors.
const (
	ClassCaller   Class = "caller"   // the request is invalid, or the client left
	ClassPolicy   Class = "policy"   // the key may not do this, or not now
	ClassGateway  Class = "gateway"  // the gateway cannot do it
	ClassUpstream Class = "upstream" // the connector or the model server cannot do it
)

// The kinds of errors.
var (
	KindInvalidRequest = &Kind{400, "invalid_request_error", "", "invalid_request_error", 0, ClassCaller}
	KindInvalidKey     = &Kind{401, "invalid_request_error", "invalid_api_key", "authentication_error", 0,
		ClassPolicy}
	KindForbidden       = &Kind{403, "invalid_request_error", "forbidden", "permission_error", 0, ClassPolicy}
	KindAddress         = &Kind{403, "permission_error", "ip_not_allowed", "permission_error", 0, ClassPolicy}
	KindUnknownModel    = &Kind{404, "invalid_request_error", "model_not_found", "not_found_error", 0, ClassCaller}
	KindUnknownURL      = &Kind{404, "invalid_request_error", "unknown_url", "not_found_error", 0, ClassCaller}
	KindNotFound        = &Kind{404, "invalid_request_error", "", "not_found_error", 0, ClassCaller}
	KindWrongMethod     = &Kind{405, "invalid_request_error", "unknown_url", "invalid_request_error", 0, ClassCaller}
	KindUpgradeRequired = &Kind{426, "invalid_request_error", "upgrade_not_supported", "invalid_request_error", 0,
		ClassCaller}
	KindRequestTimeout      = &Kind{408, "invalid_request_error", "request_timeout", "timeout_error", 0, ClassCaller}
	KindTooLarge            = &Kind{413, "invalid_request_error", "request_too_large", "request_too_large", 0, ClassCaller}
	KindUnsupportedEncoding = &Kind{415, "invalid_request_error", "unsupported_content_encoding", "invalid_request_error",
		0, ClassCaller}
	KindContextLength = &Kind{400, "invalid_request_error", "context_length_exceeded", "invalid_request_error", 0,
		ClassCaller}
	KindRateLimit    = &Kind{429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error", 0, ClassPolicy}
	KindQuota        = &Kind{429, "insufficient_quota", "insufficient_quota", "rate_limit_error", 0, ClassPolicy}
	KindOffline      = &Kind{503, "server_error", "deployment_offline", "overloaded_error", 0, ClassUpstream}
	KindOverloaded   = &Kind{503, "server_error", "overloaded", "overloaded_error", 529, ClassGateway}
	KindUnreachable  = &Kind{502, "server_error", "upstream_unreachable", "api_error", 0, ClassUpstream}
	KindTimeout      = &Kind{504, "server_error", "upstream_timeout", "timeout_error", 0, ClassUpstream}
	KindUpstream     = &Kind{502, "server_error", "upstream_error", "api_error", 0, ClassUpstream}
	KindUpstreamAuth = &Kind{502, "server_error", "upstream_auth", "api_error", 0, ClassUpstream}
	KindInternal     = &Kind{500, "server_error", "internal_error", "api_error", 0, ClassGateway}
)

// Error is the error of a request, independent of the dialect. Body, HTTPStatus and
// Header render it as an HTTP answer, Event as the end of a stream.
type Error struct {
	Kind       *Kind
	Code       string // replaces the kind's code if not empty
	Param      string // the request field that caused the error, or ""
	Message    string // human-readable: what happened, where, and what to do
	RetryAfter int    // seconds, for the header and the message; 0 means none
	// Wait is RetryAfter more precisely, or 0.
	Wait    time.Duration
	NoRetry bool   // SDKs should not retry, as the error is permanent
	Allow   string // methods for the Allow header of a 405

	// openaiType replaces the kind's if not empty.
	openaiType string

	// class replaces the kind's class if not empty.
	class Class

	// retry is how the gateway can retry the request.
	retry Retry

	// messagesMessage replaces Message in the messages dialect, whose clients
	// match the text of some messages.
	messagesMessage string

	// logged replaces Message in logs, if Message has texts of the client or of the model
	// server. foreign: so is Code.
	logged  string
	foreign bool

	// details is JSON for error.details of the messages dialect; may be empty.
	details string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Class returns the class of the error.
func (e *Error) Class() Class { return cmp.Or(e.class, e.Kind.class) }

// typeOfOpenAI returns error.type of chat and responses.
func (e *Error) typeOfOpenAI() string { return cmp.Or(e.openaiType, e.Kind.openaiType) }

// Logged returns the code and the message for logs: without texts of the client or of the model
// server, which may be content.
func (e *Error) Logged() (code, message string) {
	code = cmp.Or(e.Code, e.Kind.code)
	if e.foreign {
		code = e.Kind.code
	}
	return cmp.Or(code, e.Kind.openaiType), cmp.Or(e.logged, e.Message)
}

// lead puts a text in front of the message.
func (e *Error) lead(text string) {
	e.Message = text + e.Message
	if e.logged != "" {
		e.logged = text + e.logged
	}
}

// waitWords matches the text from which clients parse how long to wait. A message of
// the model server may contain it.
var waitWords = regexp.MustCompile(`(?i)try again in\s*\d+(\.\d+)?\s*(s|ms|seconds?)`)

// text returns the message for a client. It includes the time to wait, because some
// clients parse the message and not the header.
func (e *Error) text(d Dialect) string {
	message := e.Message
	if d == Messages && e.messagesMessage != "" {
		message = e.messagesMessage
	}
	if e.RetryAfter > 0 && !e.NoRetry && !waitWords.MatchString(message) {
		message = strings.TrimRight(message, ". ") + ". Please try again in " + strconv.Itoa(e.RetryAfter) + "s."
	}
	return message
}

// InStream reports whether the error is sent as a stream even if none has started.
// Codex does not retry after a status 429, but it does after a stream that fails with
// rate_limit_exceeded. After one with insufficient_quota it stops.
func (e *Error) InStream(d Dialect) bool {
	return d == Responses && (e.passes() || e.Kind == KindQuota)
}

// passes reports whether the same request can succeed later, when the model is less
// busy or a connector is online.
func (e *Error) passes() bool {
	return e.RetryAfter > 0 && (e.Kind == KindRateLimit || e.Kind == KindOffline)
}

// HTTPStatus returns the status of the answer in a dialect.
func (e *Error) HTTPStatus(d Dialect) int {
	if d == Messages && e.Kind.messages != 0 {
		return e.Kind.messages
	}
	return e.Kind.status
}

// permanent are statuses of errors that the same request always gets. Without the header, some
// clients send it again for minutes before they show the error.
var permanent = [...]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}

// Header returns the error's headers, with canonical keys.
func (e *Error) Header() http.Header {
	h := make(http.Header, 2)
	if e.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.Itoa(e.RetryAfter)}
	}
	if e.Wait > 0 { // OpenAI's SDKs prefer it
		h["Retry-After-Ms"] = []string{strconv.FormatInt(e.Wait.Milliseconds(), 10)}
	}
	if e.NoRetry || slices.Contains(permanent[:], e.Kind.status) {
		h["X-Should-Retry"] = []string{"false"}
	}
	if e.Allow != "" {
		h["Allow"] = []string{e.Allow}
	}
	if e.Kind == KindUpgradeRequired {
		h["Upgrade"] = []string{"HTTP/1.1"} // required by RFC 9110 §15.5.22
	}
	return h
}

// Body returns the JSON body of the answer, with a trailing newline. The OpenAI format
// always has all four keys, as its SDKs require. requestID is part of the Anthropic
// format.
func (e *Error) Body(d Dialect, requestID string) []byte {
	b := make([]byte, 0, 160+len(e.Message))
	if d == Messages {
		b = e.appendMessages(b, requestID)
	} else {
		b = e.appendOpenAI(b, d)
	}
	return append(b, '\n')
}

// Event returns the error as the last event of a stream in the chat or messages
// dialect. Nothing may follow it, not even [DONE].
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
	param := e.Param
	if e.Kind == KindContextLength && d == Responses {
		param = "input"
	}
	return jsonscan.Appendf(b, `{"error":{"message":%q,"type":%q,"param":%n,"code":%n}}`,
		e.text(d), e.typeOfOpenAI(), param, cmp.Or(e.Code, e.Kind.code))
}

// appendMessages appends the error object of the messages dialect.
func (e *Error) appendMessages(b []byte, requestID string) []byte {
	b = jsonscan.Appendf(b, `{"type":"error","error":{"type":%q,"message":%q`, e.Kind.messagesType, e.text(Messages))
	if e.details != "" {
		b = jsonscan.Appendf(b, `,"details":%s`, e.details)
	}
	return jsonscan.Appendf(b, `},"request_id":%q}`, requestID)
}
