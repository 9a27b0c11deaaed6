package dialect

// ChatPing keeps a silent chat stream alive.
var ChatPing = []byte(": ping\n\n")

// ChatStream turns the bytes of an upstream's event stream into the client's.
type ChatStream struct{}

// ChatStreamOptions are a ChatStream's options.
type ChatStreamOptions struct {
	Model        string // public name, for the client
	IncludeUsage bool   // the client asked for usage
}

// NewChatStream returns a stream that has seen nothing.
func NewChatStream(o ChatStreamOptions) *ChatStream { return nil }

// Feed takes bytes as they came and returns what to send to the client now:
// whole events, maybe none. They are valid until the next call.
func (s *ChatStream) Feed(p []byte) []byte { return nil }

// End is the end of the upstream's bytes: cause is nil for a clean end, else
// what broke it (used unless the answer is complete). It returns the last
// bytes for the client. No call after Done is needed or does harm.
func (s *ChatStream) End(cause *Error) []byte { return nil }

// Done reports that the client has got its [DONE] or an error: read no more.
func (s *ChatStream) Done() bool { return false }

// Finished reports that every choice has its finish_reason: the upstream has
// 5 s to send usage and [DONE], then call End(nil).
func (s *ChatStream) Finished() bool { return false }

// Events is the number of data events so far; comments are none, so that
// it tells progress.
func (s *ChatStream) Events() int { return 0 }

// Err is the error that ended the stream, nil while there is none.
func (s *ChatStream) Err() *Error { return nil }

// Usage is what the upstream said last of its tokens.
func (s *ChatStream) Usage() (Usage, bool) { return Usage{}, false }

// RewriteCompletion puts the public model name into a whole answer.
func RewriteCompletion(body []byte, model string) ([]byte, Usage, *Error) { return nil, Usage{}, nil }

// ReplayAsStream turns a whole answer into the event stream that an upstream
// would have sent, to be fed to a stream.
func ReplayAsStream(body []byte) ([]byte, *Error) { return nil, nil }
