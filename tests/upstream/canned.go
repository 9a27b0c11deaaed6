package upstream

import (
	"encoding/json"
	"fmt"
)

// Done is the event that ends a stream of chat completions.
const Done = "data: [DONE]\n\n"

// Error bodies as real servers send them.
const (
	// LlamaLoading: llama-server while it loads the model, status 503.
	LlamaLoading = `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`
	// LlamaContext: llama-server given too long a prompt, status 400.
	LlamaContext = `{"error":{"code":400,"message":"request (5009 tokens) exceeds the available context size (4096 ` +
		`tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5009,"n_ctx":4096}}`
	// OllamaUnknownPath: Ollama, status 404, text/plain.
	OllamaUnknownPath = "404 page not found"
)

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string is always valid
	}
	return string(b)
}

func chunk(model, delta, finish string) string {
	return fmt.Sprintf(`data: {"choices":[{"finish_reason":%s,"index":0,"delta":%s}],"created":1700000000,`+
		`"id":"chatcmpl-up1","model":%s,"system_fingerprint":"b1","object":"chat.completion.chunk"}`+"\n\n",
		finish, delta, quote(model))
}

// Role is a stream's first event.
func Role(model string) string {
	return chunk(model, `{"role":"assistant","content":null}`, "null")
}

// Delta is an event with a piece of text.
func Delta(model, text string) string {
	return chunk(model, `{"content":`+quote(text)+`}`, "null")
}

// Thought is an event with a piece of thinking.
func Thought(model, text string) string {
	return chunk(model, `{"reasoning_content":`+quote(text)+`}`, "null")
}

// Finish is the event with the reason why the model stopped.
func Finish(model, reason string) string { return chunk(model, "{}", quote(reason)) }

// ToolDelta is an event with a piece of a tool call.
func ToolDelta(model, call string) string {
	return chunk(model, `{"tool_calls":[`+call+`]}`, "null")
}

// Usage is the event with token counts that servers send when asked to.
func Usage(model string, prompt, completion int) string {
	return fmt.Sprintf(`data: {"choices":[],"created":1700000000,"id":"chatcmpl-up1","model":%s,`+
		`"system_fingerprint":"b1","object":"chat.completion.chunk","usage":{"completion_tokens":%d,"prompt_tokens":%d,`+
		`"total_tokens":%d}}`+"\n\n",
		quote(model), completion, prompt, completion+prompt)
}

// Completion is a whole answer with odd spacing and extra fields, which must reach the client unchanged.
func Completion(model, text string) string {
	return fmt.Sprintf(`{"choices": [{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":%s}}],`+
		`"created":1700000000,`+
		`"model":%s,  "system_fingerprint":"b1","object":"chat.completion","usage":{"completion_tokens":3,`+
		`"prompt_tokens":1e1,"total_tokens":13},`+
		`"id":"chatcmpl-up2","timings":{"predicted_per_second":0.10,"cache_n":12345678901234567890}}`, quote(text),
		quote(model))
}
