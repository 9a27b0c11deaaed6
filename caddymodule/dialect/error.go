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

// Kind is the kind of an error.
type Kind struct {
	status     int    // HTTP status, unless the format of the dialect has another one
	openaiType string // error.type of chat and responses
	code       string // error.code of chat and responses, "" is null
	class      Class
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
	KindInvalidRequest      = &Kind{400, "invalid_request_error", "", ClassCaller}
	KindInvalidKey          = &Kind{401, "invalid_request_error", "invalid_api_key", ClassPolicy}
	KindForbidden           = &Kind{403, "invalid_request_error", "forbidden", ClassPolicy}
	KindAddress             = &Kind{403, "permission_error", "ip_not_allowed", ClassPolicy}
	KindUnknownModel        = &Kind{404, "invalid_request_error", "model_not_found", ClassCaller}
	KindUnknownURL          = &Kind{404, "invalid_request_error", "unknown_url", ClassCaller}
	KindNotFound            = &Kind{404, "invalid_request_error", "", ClassCaller}
	KindWrongMethod         = &Kind{405, "invalid_request_error", "unknown_url", ClassCaller}
	KindUpgradeRequired     = &Kind{426, "invalid_request_error", "upgrade_not_supported", ClassCaller}
	KindRequestTimeout      = &Kind{408, "invalid_request_error", "request_timeout", ClassCaller}
	KindTooLarge            = &Kind{413, "invalid_request_error", "request_too_large", ClassCaller}
	KindUnsupportedEncoding = &Kind{415, "invalid_request_error", "unsupported_content_encoding", ClassCaller}
	KindContextLength       = &Kind{400, "invalid_request_error", "context_length_exceeded", ClassCaller}
	KindRateLimit           = &Kind{429, "rate_limit_error", "rate_limit_exceeded", ClassPolicy}
	KindQuota               = &Kind{429, "insufficient_quota", "insufficient_quota", ClassPolicy}
	KindOffline             = &Kind{503, "server_error", "deployment_offline", ClassUpstream}
	KindOverloaded          = &Kind{503, "server_error", "overloaded", ClassGateway}
	KindUnreachable         = &Kind{502, "server_error", "upstream_unreachable", ClassUpstream}
	KindTimeout             = &Kind{504, "server_error", "upstream_timeout", ClassUpstream}
	KindUpstream            = &Kind{502, "server_error", "upstream_error", ClassUpstream}
	KindUpstreamAuth        = &Kind{502, "server_error", "upstream_auth", ClassUpstream}
	KindInternal            = &Kind{500, "server_error", "internal_error", ClassGateway}
)

// Error is the error of a request, independent of the dialect. Body, HTTPStatus and
// Header render it as an HTTP answer.
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
	// Unserved means that no connector has accepted the request, so that another deployment may serve it.
	Unserved bool

	// PromptTokens and Window are the numbers that a model server's refusal of a prompt that is too long
	// names; 0: it does not.
	PromptTokens, Window int64
	// Room means that the model server has refused the prompt together with the limit of its answer: the prompt alone
	// may fit into the window.
	Room bool

	// openaiType replaces the kind's if not empty.
	openaiType string

	// class replaces the kind's class if not empty.
	class Class

	// RefusesEffort means that the model rejects the reasoning effort: DropEffort can help.
	RefusesEffort bool

	// texts replace Message in dialects whose clients match the text of some messages.
	texts map[Dialect]string

	// logged replaces Message in logs, if Message has texts of the client or of the model
	// server. If foreign is set, Code is such a text, too.
	logged  string
	foreign bool

	// ServerError is the class of the model server's text, if Message has it: see [serverErrors].
	ServerError string

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

// rendered returns the error with the message and the field for a client. The message includes
// the time to wait, because some clients parse the message and not the header.
func (e *Error) rendered(d Dialect) *Error {
	r := *e
	r.Message = cmp.Or(e.texts[d], e.Message)
	if e.RetryAfter > 0 && !e.NoRetry && !waitWords.MatchString(r.Message) {
		r.Message = strings.TrimRight(r.Message, ". ") + ". Please try again in " + strconv.Itoa(e.RetryAfter) + "s."
	}
	if e.Kind == KindContextLength {
		r.Param = d.format().content
	}
	return &r
}

// InStream reports whether the error is sent as a stream even if none has started.
func (e *Error) InStream(d Dialect) bool {
	inStream := d.format().inStream
	return inStream != nil && inStream(e)
}

// passes reports whether the same request can succeed later, when the model is less
// busy or a connector is online.
func (e *Error) passes() bool {
	return e.RetryAfter > 0 && (e.Kind == KindRateLimit || e.Kind == KindOffline)
}

// HTTPStatus returns the status of the answer in a dialect.
func (e *Error) HTTPStatus(d Dialect) int { return cmp.Or(d.format().statuses[e.Kind], e.Kind.status) }

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

// Body returns the JSON body of the answer, with a trailing newline. requestID is part of some
// dialects.
func (e *Error) Body(d Dialect, requestID string) []byte {
	b := make([]byte, 0, 160+len(e.Message))
	return append(d.format().appendError(b, e.rendered(d), requestID), '\n')
}

// appendOpenAI appends the error object of chat, responses and models. It always has all four
// keys, as OpenAI's SDKs require.
func appendOpenAI(b []byte, e *Error, _ string) []byte {
	return jsonscan.Appendf(b, `{"error":{"message":%q,"type":%q,"param":%n,"code":%n}}`,
		e.Message, e.typeOfOpenAI(), e.Param, cmp.Or(e.Code, e.Kind.code))
}
