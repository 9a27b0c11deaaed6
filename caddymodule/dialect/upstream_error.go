package dialect

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Patterns that classify upstream errors, regardless of their status.
var (
	// The prompt exceeds the context window.
	contextText = regexp.MustCompile(`(?is)exceed_context_size_error|exceeds the available context size|` +
		`maximum context length|context length.*exceed|exceed.*context length|longer than the (model's )?context|` +
		`(greater than|fit in) (the )?context length|maximum (model|allowed) length|greater than max_seq_len|` +
		"`inputs` (tokens \\+|must have less)|" +
		`prompt is too long|input is too long|context_length_exceeded|n_ctx`)
	// The prompt exceeds the context window only with the limit of its answer, as far as vLLM has counted it.
	roomText = regexp.MustCompile(`(?i)requested \d+ output tokens and your prompt contains at least`)
	// Client errors that llama.cpp reports with status 500.
	clientText = regexp.MustCompile(`(?is)image input is not supported|audio input|` +
		`does not support (tools|images|thinking|reasoning)|tools.*must be|failed to parse|missing.*role|` +
		`is too large to process`)
	// Ollama rejects reasoning effort for a model without thinking.
	effortText = regexp.MustCompile(`(?i)does not support (thinking|reasoning)|reasoning[_. ]effort|` +
		`\b(think|reasoning) value\b`)
	// Ollama rejects a model that runs in its cloud, not on this server.
	cloudText = regexp.MustCompile(`(?i)cloud is disabled|remote model .*unavailable`)
	// The model was removed or renamed.
	missingText = regexp.MustCompile(`(?i)model .*(not found|does not exist)`)
)

// serverErrors are the classes of texts of llama.cpp, Ollama, vLLM and LM Studio. The first match counts.
var serverErrors = []serverError{
	{"out_of_memory", regexp.MustCompile(`(?i)out ?of ?memory|` +
		`(enough|insufficient|system) (available )?memory|alloc\w* fail`)},
	{"context_length", regexp.MustCompile(`(?i)context size has been exceeded`)},
	{"model_loading", regexp.MustCompile(`(?i)^loading model|is (still |being )?loading|waiting for .* to start`)},
	{"load_failed", regexp.MustCompile(`(?i)(failed|unable|error) (to load|loading) `)},
	{"no_tools", regexp.MustCompile(`(?i)does not support tools|requires? --(jinja|enable-auto-tool-choice)`)},
	{"bad_template", regexp.MustCompile(`(?i)template|jinja|raise_exception|must (alternate|be at the beginning)`)},
	{"crashed", regexp.MustCompile(`(?i)(cuda|hip|rocm|vulkan) error|enginecore|` +
		`(runner|model) .*(terminated|crash|no longer)`)},
	{"other", regexp.MustCompile(``)},
}

// serverError is a class of texts.
type serverError struct {
	class string
	text  *regexp.Regexp
}

// FromUpstream returns the Error for an upstream's answer with a status other than 200. The
// answer is not relayed unchanged, because formats and statuses of servers differ too much.
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

// fromEvent returns the Error for an error in a stream or in an answer with status 200.
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

// isFailure reports whether a member marks an answer or event as an error.
func isFailure(m *jsonscan.Members) bool {
	switch string(m.Name()) {
	case "error":
		return !jsonscan.IsNull(m.Raw())
	case "object":
		return string(m.Raw()) == `"error"`
	}
	return false
}

// toError classifies a fault. what is the prefix of the message if the client did not cause
// it.
func (f *fault) toError(status int, what string) *Error {
	e := f.classify(status, what)
	if strings.Contains(e.Message, f.message) {
		i := slices.IndexFunc(serverErrors, func(s serverError) bool { return s.text.MatchString(f.message) })
		e.foreign, e.logged, e.ServerError = true, what+".", serverErrors[i].class
		if e.Kind == KindContextLength {
			e.logged, e.ServerError = "The prompt is too long for the model.", "context_length"
		}
	}
	return e
}

func (f *fault) classify(status int, what string) *Error {
	mayBeClients := status == 400 || status == 413 || status == 422 || status == 500
	described := what + ": " + f.message
	switch {
	case mayBeClients && f.isContext():
		return f.contextError()
	case status == 500 && clientText.MatchString(f.message):
		return &Error{Kind: KindInvalidRequest, Message: f.message, RefusesEffort: effortText.MatchString(f.message)}
	case status == 403 && cloudText.MatchString(f.message):
		return &Error{
			Kind: KindUpstream, NoRetry: true,
			Message: described + ". This model runs in Ollama's cloud, which is turned off in Ollama's settings. Use a local " +
				"model.",
		}
	case status == 404 && missingText.MatchString(f.message):
		described = strings.TrimRight(described, ".") + `. Load the model there; with Ollama, run "ollama pull".`
	}
	switch status {
	case 400, 413, 422:
		return &Error{
			Kind: KindInvalidRequest, Code: f.code, Message: f.message, RefusesEffort: effortText.MatchString(f.message),
		}
	case 401, 402, 403:
		// The upstream's message may contain a part of the credentials.
		return &Error{
			Kind: KindUpstreamAuth, NoRetry: true,
			Message: what + ": it refused the connector's credentials, not yours. Ask the connector's operator to check the " +
				"upstream's API key in its configuration.",
		}
	case 404:
		return &Error{Kind: KindUnknownModel, class: ClassUpstream, Param: "model", Message: described}
	case 408, 504:
		return &Error{Kind: KindTimeout, Message: described}
	case 429:
		return &Error{Kind: KindRateLimit, class: ClassUpstream, RetryAfter: 1, Message: described}
	case 503, 529:
		return &Error{Kind: KindOverloaded, class: ClassUpstream, RetryAfter: 5, Message: described}
	}
	if status >= 300 && status < 400 {
		described = what + ": a redirect, which the gateway does not follow. Set the upstream's base URL to the target."
	}
	// With other statuses below 500 and with 501, the same request will fail again.
	return &Error{Kind: KindUpstream, NoRetry: status < 500 || status == 501, Message: described}
}

// isContext reports whether the prompt is too long.
func (f *fault) isContext() bool {
	return f.window > 0 || contextText.MatchString(f.message) || contextText.MatchString(f.kind) ||
		contextText.MatchString(f.code)
}

// contextError returns the error for a prompt that is too long. Clients of the messages
// dialect compact their history if the message has "prompt is too long".
func (f *fault) contextError() *Error {
	const start = "prompt is too long"
	text := start + ": " + f.message
	switch {
	case f.prompt > f.window:
		text = fmt.Sprintf("%s: %d tokens > %d maximum", start, f.prompt, f.window)
	case strings.HasPrefix(f.message, start):
		text = f.message
	}
	return &Error{
		Kind: KindContextLength, Message: f.message, PromptTokens: f.prompt, Window: f.window,
		Room:  f.window > 0 && (f.prompt > 0 && f.prompt <= f.window || roomText.MatchString(f.message)),
		texts: map[Dialect]string{Messages: text},
	}
}

// retryAfter returns the time to wait in seconds from the answer's header, or 0. A date (RFC
// 9110 §10.2.3) is relative to the answer's Date.
func retryAfter(h http.Header) int {
	const maxWait = 24 * time.Hour
	var wait time.Duration
	value := h.Get("Retry-After")
	if ms, err := strconv.ParseInt(h.Get("Retry-After-Ms"), 10, 64); err == nil {
		wait = time.Duration(min(ms, maxWait.Milliseconds())) * time.Millisecond
	} else if s, err := strconv.ParseInt(value, 10, 64); err == nil {
		wait = time.Duration(min(s, int64(maxWait.Seconds()))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			wait = min(at.Sub(date), maxWait)
		}
	}
	if wait <= 0 {
		return 0
	}
	return int((wait + time.Second - 1) / time.Second)
}
