package dialect

import (
	"encoding/json"
	"testing"
)

// TestRefusalsOfServers: clients of each dialect learn that a prompt is too long, whatever the model server's text,
// whether it comes with a status or as the first event of a stream.
func TestRefusalsOfServers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text           string
		status         int
		prompt, window int64
	}{
		"vLLM's engine": {
			"The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that " +
				"`max_model_len` is no smaller than the number of text tokens.", 400, 5000, 4096,
		},
		"SGLang": {`The input (5000 tokens) is longer than the model's context length (4096 tokens).`, 400, 5000, 4096},
		"SGLang's scheduler": {
			`Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens).`, 400, 5000, 4096,
		},
		"LM Studio": {
			`Input does not fit in context length. The input has 5000 tokens, but the context length only supports ` +
				`4096 tokens.`, 400, 5000, 4096,
		},
		"LM Studio with llama.cpp": {
			`The number of tokens to keep from the initial prompt is greater than the context length ` +
				`(n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length.`, 400, 0, 4096,
		},
		"LM Studio without numbers": {
			`The number of tokens to keep from the initial prompt is greater than the context length. Try to load the ` +
				`model with a larger context length.`, 400, 0, 0,
		},
		"LM Studio that cannot truncate": {
			`Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)`, 400, 0, 7424,
		},
		"LM Studio of before": {
			`Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with context ` +
				`length of only 7866 tokens, which is not enough.`, 400, 0, 7866,
		},
		"LocalAI": {
			`rpc error: code = Internal desc = request (20652 tokens) exceeds the available context size (4096 tokens), ` +
				`try increasing it`, 500, 20652, 4096,
		},
		"TabbyAPI": {`Prompt length 5000 is greater than max_seq_len 4096`, 400, 5000, 4096},
		"TGI":      {"Input validation error: `inputs` must have less than 4096 tokens. Given: 5000", 422, 5000, 4096},
		"TGI with the answer": {
			"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and " +
				"100 `max_new_tokens`", 422, 5000, 4096,
		},
	} {
		body, _ := json.Marshal(map[string]any{"error": map[string]any{"message": test.text}})
		flat, _ := json.Marshal(map[string]any{"error": test.text})
		for shape, e := range map[string]*Error{
			"whole": FromUpstream(test.status, nil, body), "flat": FromUpstream(test.status, nil, flat),
			"in a stream": fromEvent(body), "flat in a stream": fromEvent(flat),
		} {
			if e.Kind != KindContextLength || e.PromptTokens != test.prompt || e.Window != test.window {
				t.Errorf("%s, %s: %+v", name, shape, e)
			}
			checkOpenAI(t, e.Body(Chat, ""), "invalid_request_error", "context_length_exceeded", "messages")
			checkOpenAI(t, e.Body(Responses, ""), "invalid_request_error", "context_length_exceeded", "input")
			checkMessages(t, e.Body(Messages, "req_1"), "invalid_request_error")
		}
	}
}

// Other texts with such words are not about the length of a prompt.
func TestRefusalsOfOtherValues(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"temperature must be <= 2", "Input validation error: `stop` must be <= 4. Given: 5",
		"Input validation error: `max_new_tokens` must be <= 4096. Given: 5000", "max_seq_len must be a number",
	} {
		if e := FromUpstream(400, nil, []byte(text)); e.Kind != KindInvalidRequest {
			t.Errorf("%s: %+v", text, e)
		}
	}
}

// An input of embeddings that is too long is the client's fault, so SDKs do not send it again.
func TestEmbeddingsTooLong(t *testing.T) {
	t.Parallel()
	e := FromUpstream(500, nil, []byte(`{"error":{"code":500,"message":"input (27001 tokens) is too large to process. `+
		`increase the physical batch size (current batch size: 512)","type":"server_error"}}`))
	if e.Kind != KindInvalidRequest || e.HTTPStatus(Chat) != 400 {
		t.Errorf("%+v", e)
	}
}
