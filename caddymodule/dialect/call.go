package dialect

import (
	"bytes"
	"context"
	"crypto/rand"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// Call is one request on its way: decoded from its caller's dialect, sent to
// the upstream as chat, its answer encoded in the caller's dialect again.
type Call interface {
	// Streamed reports whether the client wants an event stream.
	Streamed() bool
	// Body is the body of POST /v1/chat/completions (or of the operation's own
	// path) for the upstream's id of the model.
	Body(upstreamModel string) *Segments
	// WholeBody is Body for an answer that is not a stream.
	WholeBody(upstreamModel string) *Segments
	// DropEffort removes the degree of thinking from the bodies, for a model that
	// knows none. It reports whether they had one that was not the client's own, as in
	// a chat request, which goes through as it is.
	DropEffort() bool
	// Retry returns how to send the request again after an error of the upstream.
	// The bodies are made accordingly from then on.
	Retry(e *Error) Retry
	// Answer turns a whole answer of the upstream into the client's body. An
	// estimated usage may be without the prompt.
	Answer(body []byte) ([]byte, Usage, *Error)
	// NewStream encodes the one answer to a streamed call.
	NewStream() Stream
	// Prompt is what the model reads, for counting its tokens; nil if that is
	// not known, as for a body that goes through unread.
	Prompt() *tokens.Prompt
}

// Retry is how a request that failed can be sent again.
type Retry uint8

// The ways to send a request again, each of which is offered once.
const (
	RetryNot           Retry = iota
	RetryWithoutEffort       // the model knows no degrees of thinking: the bodies no longer ask for one
	RetryWhole               // the model server cannot stream this: send WholeBody, and show the answer with ReplayAsStream
)

// retries is what a call has been retried with.
type retries struct{ whole bool }

// after is Call.Retry for a call whose DropEffort is given.
func (r *retries) after(e *Error, dropEffort func() bool) Retry {
	switch {
	case e == nil:
	case e.retry == RetryWithoutEffort && dropEffort():
		return RetryWithoutEffort
	case e.retry == RetryWhole && !r.whole:
		r.whole = true
		return RetryWhole
	}
	return RetryNot
}

// Stream encodes one streamed answer. It is not safe for concurrent use.
type Stream interface {
	// Begin is what opens the stream, once: sent with the header, before all
	// else.
	Begin() []byte
	// Ping keeps a silent stream alive; the first one opens it.
	Ping() []byte
	// Feed takes the upstream's bytes as they come and returns what to send to
	// the client now: whole events, maybe none, valid until the next call.
	Feed(p []byte) []byte
	// End is the end of the upstream's bytes: cause is nil for a clean end,
	// else what broke it. It returns the last bytes for the client.
	End(cause *Error) []byte
	// Done reports that the client has got the end of its stream.
	Done() bool
	// Finished reports that the answer is complete: what may follow is usage
	// and the upstream's own end, which need not be waited for long.
	Finished() bool
	// Err is the error that ended the stream, nil before that.
	Err() *Error
	// Usage is what the upstream reported last of its tokens; if it reported
	// nothing, ok is false and the usage is an estimate of the answer, without the
	// prompt.
	Usage() (u Usage, ok bool)
	// Held is how many bytes the stream remembers: of an event that is not
	// complete, of an answer that cannot be sent on yet, or will be repeated.
	Held() int64
}

// Env is what a call takes from its surroundings.
type Env struct {
	// Context is the request's: when it ends, so does the work for it, with an
	// error that is not sent. nil: it has no end.
	Context context.Context
	// Now is the clock.
	Now func() time.Time
	// NewID makes an id: the prefix and at least 128 random bits.
	NewID func(prefix string) string
	// RequestID is the request's own id, for in-band errors.
	RequestID string
	// SignatureKey signs thinking blocks.
	SignatureKey []byte
	// Sealer seals what clients carry for Account without having to know it.
	Sealer *Sealer
	// Estimate is how many tokens a prompt to a public model will be counted
	// as; nil: no estimate.
	Estimate func(model string, p *tokens.Prompt) int
	// Kept holds the responses that previous_response_id and item_reference
	// may name; the zero view keeps none.
	Kept    kept.View
	Account string
	// Gateway decides who may use a model and whether there is memory, and has the
	// model's options; nil: all requests pass, with the defaults.
	Gateway Gateway
	// Dropped receives the type of each item that means nothing to a model, for
	// the log; may be nil.
	Dropped func(itemType string)
}

// NewID makes an id of 26 base32 characters behind its prefix.
func NewID(prefix string) string { return prefix + rand.Text() }

// NewRequestID returns an id for the headers x-request-id and request-id and
// for error bodies.
func NewRequestID() string { return NewID("req_") }

// byteOrderMark begins a text of some editors and shells. JSON texts have none,
// but a reader may skip it (RFC 8259 §8.1).
var byteOrderMark = []byte("\ufeff")

// Decode reads the body of an operation that an upstream answers.
func Decode(op Operation, body []byte, env *Env) (Call, *Error) {
	body = bytes.TrimPrefix(body, byteOrderMark)
	switch op.Kind {
	case CreateMessage:
		return decodeMessages(body, env, false)
	case CountTokens:
		return decodeMessages(body, env, true)
	case CreateResponse, CountInputTokens:
		return decodeResponses(body, env)
	}
	r, err := ScanRequest(op, body)
	if err != nil {
		return nil, err
	}
	options, err := env.admit(r.Model)
	if err != nil {
		return nil, err
	}
	return r, r.applyOptions(options)
}

// Streamed implements Call.
func (r *ChatRequest) Streamed() bool { return r.Stream }

// DropEffort implements Call.
func (r *ChatRequest) DropEffort() bool { return false }

// Retry implements Call.
func (r *ChatRequest) Retry(e *Error) Retry { return r.retries.after(e, r.DropEffort) }

// Answer implements Call.
func (r *ChatRequest) Answer(body []byte) ([]byte, Usage, *Error) {
	return RewriteCompletion(body, r.Model)
}

// NewStream implements Call.
func (r *ChatRequest) NewStream() Stream {
	return NewChatStream(ChatStreamOptions{Model: r.Model, IncludeUsage: r.IncludeUsage, Choices: r.Choices, RepairToolIndex: r.repairIndex})
}

// Prompt implements Call. It reads the body once more, so it is for when the
// answer has been sent.
func (r *ChatRequest) Prompt() *tokens.Prompt {
	if r.kind != ChatCompletions {
		return nil
	}
	body := r.body
	if len(r.folds) > 0 {
		body = r.folds.appendTo(nil, body)
	}
	var messages, tools []byte
	for m := jsonscan.Object(body); m.Next(); {
		switch string(m.Name()) {
		case "messages":
			messages = m.Raw()
		case "tools":
			tools = m.Raw()
		}
	}
	return tokens.NewPrompt(messages, tools)
}

// Begin implements Stream: a chat stream opens with its first chunk.
func (s *ChatStream) Begin() []byte { return nil }

// Ping implements Stream.
func (s *ChatStream) Ping() []byte { return ChatPing }

// Interface guards.
var (
	_ Call   = (*ChatRequest)(nil)
	_ Stream = (*ChatStream)(nil)
	_ Stream = (*answerStream)(nil)
)
