// Package dialect implements the HTTP APIs for models: bytes and events in, bytes and
// events out. It does no I/O, and depends neither on Caddy nor on the tunnel.
//
// A dialect is the API that a client uses: chat (OpenAI chat completions, including
// completions, embeddings and the model list), responses (OpenAI responses) or
// messages (Anthropic messages). The model server only receives the chat dialect.
//
// The processing of a request:
//
//	Lookup          method and path        → Operation, or an Error
//	ReadHead        client's body          → Head: the model, and references to kept responses
//	Head.Decode     deployment's options   → Call
//	Call.Body       upstream's model id    → Segments: the upstream's body
//	FromUpstream    status, header, body   → Error, if the upstream did not answer 200
//	Call.Answer     whole answer           → the client's body
//	ReplayAsStream  whole answer           → the equivalent event stream
//	Call.NewStream  upstream's bytes       → the client's bytes, event by event
//	Error           → status, headers and body in the client's dialect
//
// The chat dialect changes only the bytes that it must. JSON is scanned (package
// jsonscan) and spliced (splice.go), but never decoded and re-encoded, so that key
// order, number literals and unknown keys are preserved. It therefore has its own
// chunk reader (chat_chunk.go). The normaliser would lose unknown members.
//
// In the other dialects, an answer passes three incremental stages. The normaliser
// converts the servers' formats to a few kinds of parts: text, reasoning, refusals,
// tool calls and their arguments, the end or an error. The serialiser ensures that
// only one block is open at a time. The encoder writes the blocks in its dialect. A
// whole answer takes the same path. A messages stream does not buffer what it has
// sent. A responses stream buffers the answer, because its last event repeats it.
//
// The options of a deployment (package compat) are applied once the model of a
// request is known. Default options cost nothing.
//
// Packages below this one are independent of dialects: jsonscan, sse (event streams),
// tokens (prompt token counts) and kept (stored responses). A new dialect needs a
// request decoder, an answer encoder, and rows in operation.go: its name, its
// operations with their kinds, and its format.
package dialect
