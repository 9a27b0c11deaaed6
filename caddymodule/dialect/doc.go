// Package dialect is the gateway's knowledge of HTTP APIs for models: bytes
// and events in, bytes and events out. It does no I/O and knows neither Caddy
// nor the tunnel.
//
// A dialect is what a client speaks: chat (OpenAI chat completions, with
// completions, embeddings and the model list next to it), responses (OpenAI
// responses) or messages (Anthropic messages). The model server only ever sees
// the chat dialect.
//
// How one request passes:
//
//	Lookup          method and path        → Operation, or an Error
//	ScanRequest     client's body          → ChatRequest: what the gateway must know of it
//	ChatRequest.Body  upstream's model id  → Segments: the upstream's body, spliced, not copied
//	FromUpstream    status, header, body   → Error, if the upstream did not answer 200
//	RewriteCompletion  whole answer        → the client's body
//	ReplayAsStream  whole answer           → the stream that it should have been
//	ChatStream      upstream's bytes       → the client's bytes, event by event
//	Error           → status, headers and body in the dialect of the caller
//
// The chat dialect passes everything through byte for byte except for what it has
// to change: JSON is scanned (package jsonscan) and spliced (splice.go), never
// decoded and encoded again, so that key order, number literals and unknown keys
// survive. That is why it has a reader of chunks of its own (chat_chunk.go): the
// normaliser's loses what it does not know.
//
// The other dialects see the answer through three stages, all of them fed by
// the piece: the normaliser makes a small alphabet of what servers send (text,
// reasoning, refusals, tool calls and their arguments, the end or an error),
// the serialiser has one block open at a time, and an encoder writes blocks in
// its dialect. A whole answer goes the same way. A messages stream remembers
// nothing of what it has sent; a responses stream remembers the answer, as its
// last event repeats it.
//
// Model servers differ; what a deployment's options demand
// (package compat) is asked for once the model of a request is known, and
// costs nothing while all are at their defaults.
//
// Libraries that know no dialect are packages below this one: jsonscan, sse (event
// streams), tokens (counts of prompts), kept (stored responses). Another dialect is
// two more files, a decoder of its requests and an encoder of its answers, and its
// rows in operation.go.
package dialect

// Dialect is what a client speaks. Its value is the name that logs and metrics
// use.
type Dialect string

// The dialects.
const (
	Chat      Dialect = "chat"      // OpenAI chat completions, completions, embeddings, models
	Responses Dialect = "responses" // OpenAI responses
	Messages  Dialect = "messages"  // Anthropic messages
)
