package window

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestRefusal(t *testing.T) {
	for _, tt := range []struct {
		message        string
		prompt, window int64
	}{
		{`request (4550 tokens) exceeds the available context size (4096 tokens), try increasing it`, 4550, 4096},
		{`The input (5000 tokens) is longer than the model's context length (4096 tokens).`, 5000, 4096},
		{`input length (9 tokens) exceeds the model's maximum context length (8 tokens)`, 9, 8},
		{`This model's maximum context length is 4097 tokens. However, your messages resulted in 6164 tokens.`, 6164, 4097},
		{`this model's maximum context length is 8 tokens, but the prompt contains 9 input tokens`, 9, 8},
		{
			`This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4900 in the messages, ` +
				`100 in the completion).`, 4900, 4096,
		},
		{
			`Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of ` +
				`5000 tokens: 4900 tokens from the input messages and 100 tokens for the completion.`, 4900, 4096,
		},
		{
			`You passed 10243 input tokens and requested 6142 output tokens. However, the model's context length is only ` +
				`10242 tokens, resulting in a maximum input length of 4100 tokens.`, 10243, 10242,
		},
		{
			`Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with context ` +
				`length of only 7866 tokens, which is not enough.`, 0, 7866,
		},
		// LocalAI, vLLM's engine, LM Studio, TabbyAPI, TGI, llama-cpp-python.
		{
			`rpc error: code = Internal desc = request (20652 tokens) exceeds the available context size (4096 tokens), ` +
				`try increasing it`, 20652, 4096,
		},
		{
			"The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that " +
				"`max_model_len` is no smaller than the number of text tokens plus multimodal tokens.", 5000, 4096,
		},
		{
			`The decoder prompt (length 4096) plus the number of requested output tokens (at least 1) is longer than the ` +
				`maximum model length of 4096.`, 4096, 4096,
		},
		{
			`Input does not fit in context length. The input has 13055 tokens, but the context length only supports ` +
				`4096 tokens.`, 13055, 4096,
		},
		{
			`The number of tokens to keep from the initial prompt is greater than the context length ` +
				`(n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length`, 0, 4096,
		},
		{`Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)`, 0, 7424},
		{`The number of tokens to keep from the initial prompt is greater than the context length.`, 0, 0},
		{`Prompt length 5000 is greater than max_seq_len 4096`, 5000, 4096},
		{`Context length 5000 is greater than max_seq_len 4096`, 5000, 4096},
		{"Input validation error: `inputs` must have less than 4096 tokens. Given: 5000", 5000, 4096},
		{
			`This model's maximum context length is 4096 tokens, however you requested 5000 tokens (4900 in your prompt; ` +
				`100 for the completion). Please reduce your prompt; or completion length.`, 4900, 4096,
		},
		{`Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens).`, 5000, 4096},
		// The prompt fits, but not with the room for its answer.
		{
			`You passed 17459 input tokens and requested 32000 output tokens. However, the model's context length is only ` +
				`32768 tokens, resulting in a maximum input length of 768 tokens.`, 17459, 32768,
		},
		{
			`'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 ` +
				`tokens and your request has 17459 input tokens (32000 > 32768 - 17459).`, 17459, 32768,
		},
		{
			`This model's maximum context length is 32768 tokens. However, you requested 32000 output tokens and your ` +
				`prompt contains 17459 input tokens, for a total of 49459 tokens.`, 17459, 32768,
		},
		{
			"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4031 `inputs` tokens and " +
				"200 `max_new_tokens`", 4031, 4096,
		},
		// Numbers that include the output, or are only a bound.
		{
			`This model's maximum context length is 32768 tokens. However, you requested 32000 output tokens and your ` +
				`prompt contains at least 769 input tokens, for a total of at least 32769 tokens.`, 0, 32768,
		},
		{`This model's maximum context length is 4096 tokens. However, you requested 5000 tokens`, 0, 4096},
		{`This model's maximum context length is 4096 tokens. However, it contains at least 4097 input tokens`, 0, 4096},
		// Texts of clients that a server repeats, and odd ones.
		{`Unknown role: This model's maximum context length is 5 tokens`, 0, 0},
		{"Input validation error: `stop` must be <= 4. Given: 5", 0, 0},
		{`Unknown role: Prompt length 5000 is greater than max_seq_len 4096`, 0, 0},
		{`unknown tool x (6 tokens) exceeds the context (5 tokens)`, 0, 0},
		{`This model's maximum context length is 99999999999999999999 tokens`, 0, 0},
		{``, 0, 0},
	} {
		if prompt, window := Refusal(tt.message); prompt != tt.prompt || window != tt.window {
			t.Errorf("%s: %d, %d", tt.message, prompt, window)
		}
	}
}

func TestRead(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		want   Result
	}{
		{400, `{"error":{"n_prompt_tokens":600013,"n_ctx":4096}}`, Result{Window: 4096}},
		{400, `{"error":{"message":"{\"error\":{\"n_prompt_tokens\":600013,\"n_ctx\":4096}}"}}`, Result{Window: 4096}},
		{400, `{"error":"input length (9 tokens) exceeds the model's maximum context length (8 tokens)"}`, Result{Window: 8}},
		{400, `{"error":"the model is loaded with context length of only 7866 tokens"}`, Result{Window: 7866}},
		{
			400, `{"error":"Input does not fit in context length. The input has 600013 tokens, but the context length only ` +
				`supports 4096 tokens."}`, Result{Window: 4096},
		},
		{400, `{"error":"(n_keep: 600013>= n_ctx: 4096)"}`, Result{Window: 4096}},
		{400, `{"error":"Cannot truncate prompt with n_keep (600013) >= n_ctx (7424)"}`, Result{Window: 7424}},
		{400, `{"error":"(length 600013) is longer than the maximum model length of 4096."}`, Result{Window: 4096}},
		{400, `{"error":{"message":"Prompt length 600013 is greater than max_seq_len 4096"}}`, Result{Window: 4096}},
		{422, "{\"error\":\"`inputs` must have less than 4096 tokens. Given: 600013\"}", Result{Window: 4096}},
		{422, "{\"error\":\"`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9\"}", Result{Window: 4096}},
		{400, `{"error":{"n_ctx":100000001}}`, Result{}},
		{403, `{"error":"no"}`, Result{}},
		{200, `{"usage":{"prompt_tokens":2050}}`, Result{Window: 4096, Cuts: true}},
		{200, `{"usage":{"prompt_tokens":131074}}`, Result{Window: 262144, Cuts: true}},
		{200, `{"usage":{"prompt_tokens":600013}}`, Result{Window: 600013, AtLeast: true}},
		{200, `{"usage":{"prompt_tokens":255}}`, Result{}},
		{200, `{"usage":{"prompt_tokens":256}}`, Result{Window: 508, Cuts: true}},
		{200, `{"usage":{"prompt_tokens":"2050"}}`, Result{}},
		{200, `{"usage":[]}`, Result{}},
		{200, `<html>`, Result{}},
	} {
		if got := Read(tt.status, []byte(tt.body)); got != tt.want {
			t.Errorf("%d %s: %+v", tt.status, tt.body, got)
		}
	}
}

func TestPrompt(t *testing.T) {
	body := Prompt("qwen3:8b")
	var request struct {
		Model     string
		MaxTokens int `json:"max_tokens"`
		Messages  []struct{ Role, Content string }
	}
	if err := json.Unmarshal(body, &request); err != nil || request.Model != "qwen3:8b" || request.MaxTokens != 1 ||
		len(request.Messages) != 1 || len(request.Messages[0].Content) != 1_200_000 {
		t.Errorf("%v, %.200s", err, body)
	}
}

func FuzzRefusal(f *testing.F) {
	f.Add(`{"error":{"message":"{\"error\":{\"n_prompt_tokens\":8626,\"n_ctx\":4096}}"}}`)
	f.Add(`This model's maximum context length is 8 tokens, but the prompt contains 9 input tokens`)
	f.Add("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8. Given: 9 `inputs` tokens")
	f.Add(`Cannot truncate prompt with n_keep (9) >= n_ctx (8)`)
	f.Add(`rpc error: code = Internal desc = The decoder prompt (length 9) is longer than the maximum model length of 8`)
	f.Add(`request (9 tokens) exceeds the context size (8 tokens)`)
	f.Fuzz(func(t *testing.T, body string) {
		prompt, window := Refusal(body)
		if window < 0 || window > Max || prompt < 0 || prompt > Max {
			t.Fatal(prompt, window)
		}
		for _, status := range []int{200, 400} {
			if r := Read(status, []byte(body)); r.Window < 0 || r.Window > 2*Max || fmt.Sprint(r) == "" {
				t.Fatalf("%+v", r)
			}
		}
	})
}
