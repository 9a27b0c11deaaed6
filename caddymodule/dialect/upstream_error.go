package dialect

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Texts by which upstream errors are distinguished, whatever their status.
var (
	// A prompt that does not fit into the context.
	contextText = regexp.MustCompile(`(?is)exceed_context_size_error|exceeds the available context size|maximum context length|` +
		`context length.*exceed|exceed.*context length|longer than the (model's )?context|prompt is too long|input is too long|` +
		`context_length_exceeded|n_ctx`)
	// Faults of the client that llama.cpp reports as its own, with 500.
	clientText = regexp.MustCompile(`(?is)image input is not supported|audio input|does not support (tools|images|thinking|reasoning)|` +
		`tools.*must be|failed to parse|missing.*role`)
	// Ollama on a degree of thinking for a model that does not think.
	effortText = regexp.MustCompile(`(?i)does not support (thinking|reasoning)`)
	// Older llama.cpp on a request for a stream with tools.
	wholeText = regexp.MustCompile(`(?i)cannot use tools with stream`)

	// How many tokens were asked for, and how many there is room for.
	sizesText  = regexp.MustCompile(`(?is)\((\d+) tokens\).*?\((\d+) tokens\)`)
	windowText = regexp.MustCompile(`(?is)maximum context length (?:is|of) (\d+)(?:.*?(\d+))?`)
)

// FromUpstream makes an Error of an upstream's answer that is not 200. Nothing
// is relayed by its shape: servers' bodies and statuses differ too much for
// clients to rely on, and some report a client's fault as their own.
func FromUpstream(status int, h http.Header, body []byte) *Error {
	f := readFault(body)
	if f.message == "" {
		f.message = fmt.Sprintf("upstream returned HTTP %d", status)
	}
	e := f.toError(status, fmt.Sprintf("The model server answered HTTP %d", status))
	if e.Kind == KindRateLimit || e.Kind == KindOverloaded {
		if seconds := retryAfter(h); seconds > 0 {
			e.RetryAfter = seconds
		}
	}
	return e
}

// fromEvent makes an Error of one that came with a good status: in a stream or
// in the body of a 200.
func fromEvent(data []byte) *Error {
	f := readFault(data)
	if f.message == "" {
		f.message = "no reason given"
	}
	status := f.status
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	return f.toError(status, "The model server reported an error")
}

// isFailure reports whether a member of an answer, or of an event of one, makes it
// an error.
func isFailure(m *jsonscan.Members) bool {
	switch string(m.Name()) {
	case "error":
		return !jsonscan.IsNull(m.Raw())
	case "object":
		return string(m.Raw()) == `"error"`
	}
	return false
}

// toError finds the kind of a fault. what describes how it was met, for messages
// about faults that are not the client's.
func (f *fault) toError(status int, what string) *Error {
	mayBeClients := status == 400 || status == 413 || status == 422 || status == 500
	described := what + ": " + f.message
	switch {
	case mayBeClients && f.isContext():
		return f.contextError()
	case status == 500 && wholeText.MatchString(f.message):
		return &Error{Kind: KindInvalidRequest, Message: f.message, retry: RetryWhole}
	case status == 500 && clientText.MatchString(f.message):
		return &Error{Kind: KindInvalidRequest, Message: f.message, retry: f.effortRetry()}
	}
	switch status {
	case 400, 413, 422:
		return &Error{Kind: KindInvalidRequest, Code: f.code, Message: f.message, retry: f.effortRetry()}
	case 401, 402, 403:
		// Its text may hold a part of the credentials.
		return &Error{Kind: KindUpstreamAuth, NoRetry: true, Message: what + ": it refused the connector's credentials, not yours. The connector's operator must check the upstream's API key in its configuration."}
	case 404:
		return &Error{Kind: KindUnknownModel, Param: "model", Message: described}
	case 408, 504:
		return &Error{Kind: KindTimeout, Message: described}
	case 429:
		return &Error{Kind: KindRateLimit, RetryAfter: 1, Message: described}
	case 503, 529:
		return &Error{Kind: KindOverloaded, RetryAfter: 5, Message: described}
	}
	if status >= 300 && status < 400 {
		described = what + ": a redirect, which the gateway does not follow. Set the upstream's base URL to the target."
	}
	// Statuses below 500 are about HTTP between gateway and upstream, and 501
	// about what the server can do at all: the same request will fail again.
	return &Error{Kind: KindUpstream, NoRetry: status < 500 || status == 501, Message: described}
}

// effortRetry is how to send a request again if its degree of thinking may be at
// fault.
func (f *fault) effortRetry() Retry {
	if effortText.MatchString(f.message) {
		return RetryWithoutEffort
	}
	return RetryNot
}

// isContext reports whether the prompt was too long.
func (f *fault) isContext() bool {
	return f.window > 0 || contextText.MatchString(f.message) || contextText.MatchString(f.kind) || contextText.MatchString(f.code)
}

// contextError is the error for a prompt that is too long. Clients of the
// messages dialect compact their history when they read "prompt is too long".
func (f *fault) contextError() *Error {
	const start = "prompt is too long"
	prompt, window := f.prompt, f.window
	if m := sizesText.FindStringSubmatch(f.message); window == 0 && m != nil {
		prompt, window = number(m[1]), number(m[2])
	} else if m := windowText.FindStringSubmatch(f.message); window == 0 && m != nil {
		window, prompt = number(m[1]), number(m[2])
	}
	text := start + ": " + f.message
	switch {
	case prompt > 0 && window > 0:
		text = fmt.Sprintf("%s: %d tokens > %d maximum", start, prompt, window)
	case strings.HasPrefix(f.message, start):
		text = f.message
	}
	return &Error{Kind: KindContextLength, Param: "messages", Message: f.message, messagesMessage: text}
}

// number reads digits; 0 for what does not fit.
func number(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// retryAfter is an upstream's wish in seconds, 0 if it has none that makes
// sense. A date (RFC 9110 §10.2.3) is read against the answer's own Date.
func retryAfter(h http.Header) int {
	const most = 24 * time.Hour
	var wait time.Duration
	value := h.Get("Retry-After")
	if ms, err := strconv.ParseInt(h.Get("Retry-After-Ms"), 10, 64); err == nil {
		wait = time.Duration(min(ms, most.Milliseconds())) * time.Millisecond
	} else if s, err := strconv.ParseInt(value, 10, 64); err == nil {
		wait = time.Duration(min(s, int64(most.Seconds()))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			wait = min(at.Sub(date), most)
		}
	}
	if wait <= 0 {
		return 0
	}
	return int((wait + time.Second - 1) / time.Second)
}
