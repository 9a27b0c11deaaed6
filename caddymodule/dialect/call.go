package dialect

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// Call is one request: decoded from the client's dialect, sent to the upstream as
// chat, its answer encoded in the client's dialect.
type Call interface {
	// Streamed reports whether the client wants an event stream.
	Streamed() bool
	// Body returns the upstream's body of POST /v1/chat/completions, or of the
	// operation's path, with the upstream's model id.
	Body(upstreamModel string) *Segments
	// OutputLimit returns how many tokens the answer may have, 0 if the client does not
	// limit them.
	OutputLimit() int64
	// LimitOutput lowers that limit in the bodies to n, or sets it.
	LimitOutput(n int64)
	// AnswerLimit returns how many tokens each answer may have, 0 if nothing limits them.
	AnswerLimit() int64
	// FitAnswer lowers that limit in the bodies to n, so that the answer fits into the window. 0 undoes that.
	FitAnswer(n int64)
	// DropEffort removes the reasoning effort, or what the deployment sends in its
	// place, from the bodies, for a model that rejects it. It reports whether there
	// was one to remove. Chat requests are never changed.
	DropEffort() bool
	// Answer returns the client's body for a whole answer of the upstream. An
	// estimated usage may lack the prompt.
	Answer(body []byte) ([]byte, Usage, *Error)
	// NewStream returns the stream that encodes the answer to a streamed call.
	NewStream() Stream
	// Dropped returns the parts of the request that are not sent to the model although they carry
	// meaning, for people: paths with types. It returns "" if there are none.
	Dropped() string
	// Safeguard returns the check of the answer's tool calls, nil if there is none.
	Safeguard() *Safeguard
	// Conversation returns a text that the requests of a conversation share: the
	// prompt_cache_key, else the beginning of the first message that is not a system
	// message. It returns nil if the request has neither.
	Conversation() []byte
	// Prompt returns the prompt for counting its tokens, nil if it is not known. It is the same each time.
	Prompt() *tokens.Prompt
}

// Stream encodes one streamed answer. It is not safe for concurrent use.
type Stream interface {
	// Ping returns an event that keeps a silent stream alive. The first one opens
	// the stream.
	Ping() []byte
	// Feed consumes the upstream's bytes and returns complete events for the
	// client, possibly none. They are valid until the next call.
	Feed(p []byte) []byte
	// End ends the upstream's stream and returns the last bytes for the client.
	// cause is nil for a clean end, else the error that broke the stream.
	End(cause *Error) []byte
	// Done reports whether the end of the client's stream was returned.
	Done() bool
	// Finished reports whether the answer is complete. Only usage and the end of
	// the upstream's stream may follow.
	Finished() bool
	// Err returns the error that ended the stream, or nil.
	Err() *Error
	// Usage returns the usage that the upstream reported last. If it reported
	// none, ok is false and the usage is an estimate of the answer without the
	// prompt.
	Usage() (u Usage, ok bool)
	// Buffered returns the number of buffered bytes: incomplete events, and content
	// that cannot be sent yet or will be repeated.
	Buffered() int64
}

// Env is the environment of a call.
type Env struct {
	// Context is the request's context. When it is done, decoding stops with an
	// error that is not sent. May be nil.
	Context context.Context
	// Now is the clock.
	Now func() time.Time
	// NewID returns an id: the prefix and at least 128 random bits.
	NewID func(prefix string) string
	// RequestID is the request's own id, for in-band errors.
	RequestID string
	// SignatureKey signs thinking blocks.
	SignatureKey []byte
	// Betas are the values of the header Anthropic-Beta.
	Betas []string
	// Sealer seals data of Account that clients store.
	Sealer *Sealer
	// Estimate returns the estimated tokens of the prompt, the same each time; nil: no
	// estimate.
	Estimate func(*tokens.Prompt) int
	// Kept holds the responses that previous_response_id and item_reference can
	// refer to. The zero view keeps none.
	Kept    kept.View
	Account string
	// Form is the scanner of a body that is a form, else nil.
	Form *Form
	// DefaultModel is the model of requests that name none; "": they fail.
	DefaultModel string
	// Options are those of the deployment, set by [Head.Decode].
	Options compat.Options
	// Info is written while the request is decoded and the answer is read. May be nil.
	Info *AnswerInfo
}

// ended reports whether the request's context is done.
func (e *Env) ended() bool { return e.Context != nil && e.Context.Err() != nil }

// NewID returns an id: the prefix and 26 base32 characters.
func NewID(prefix string) string { return prefix + rand.Text() }

// NewRequestID returns an id for the headers x-request-id and request-id and
// for error bodies.
func NewRequestID() string { return NewID("req_") }

// Streamed implements Call.
func (r *ChatRequest) Streamed() bool { return r.Stream }

// DropEffort implements Call.
func (r *ChatRequest) DropEffort() bool { return false }

// Answer implements Call.
func (r *ChatRequest) Answer(body []byte) ([]byte, Usage, *Error) {
	return rewriteCompletion(body, r.Model, r.Info)
}

// NewStream implements Call.
func (r *ChatRequest) NewStream() Stream { return NewChatStream(r.ChatStreamOptions) }

// Prompt implements Call.
func (r *ChatRequest) Prompt() *tokens.Prompt { return r.prompt }

// promptText returns the messages and the tools of the upstream's body. It copies messages that are changed.
func (r *ChatRequest) promptText() (messages, tools []byte) {
	messages = r.content.Bytes(r.body)
	if len(r.folds) > 0 && r.developer == r.content { // not those of a duplicate
		messages = r.folds.appendTo(nil, r.body[:r.content.End])[r.content.Start:]
	}
	return messages, r.tools.Bytes(r.body)
}

// Ping implements Stream.
func (s *ChatStream) Ping() []byte { return chatPing }

// Interface guards.
var (
	_ Call   = (*ChatRequest)(nil)
	_ Stream = (*ChatStream)(nil)
	_ Stream = (*answerStream)(nil)
)
