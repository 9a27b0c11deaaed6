package dialect

// ChatRequest is what the gateway knows of a request in the chat dialect.
type ChatRequest struct {
	Model        string // the public name that the client asked for
	Stream       bool   // the client wants an event stream
	IncludeUsage bool   // the client wants usage in its stream
}

// ScanRequest reads the body of ChatCompletions, Completions or Embeddings.
func ScanRequest(op Operation, body []byte) (*ChatRequest, *Error) { return nil, nil }

// Body is the upstream's body: the client's, with the upstream's model id.
func (r *ChatRequest) Body(upstreamModel string) *Segments { return nil }

// WholeBody is Body for an answer that is no stream.
func (r *ChatRequest) WholeBody(upstreamModel string) *Segments { return nil }
