package window

import (
	"regexp"
	"strconv"
	"strings"
)

// Texts of refusals. They match only at the beginning of a message, as servers repeat texts of clients in the rest.
var (
	// Both numbers: llama.cpp, SGLang, Ollama with MLX and LocalAI; vLLM's engine; LM Studio with MLX; TabbyAPI.
	bothText = regexp.MustCompile(`(?i)^(?:rpc error: code = \w+ desc = )?(?:` +
		`(?:the )?(?:request|input)[ a-z]*\((\d+) tokens\) (?:exceeds|is longer)[^()]* (?:context|allowed) ` +
		`[^()]*\((\d+) tokens\)|` +
		`(?:the )?(?:[a-z]+ )?prompt \(length (\d+)\).{1,100}? maximum model length of (\d+)|` +
		`input does not fit in context length\. the input has (\d+) tokens,.{1,60}? only supports (\d+)|` +
		`(?:context|prompt) length (\d+) is greater than max_seq_len (\d+))`)
	// The window: vLLM and OpenAI, LM Studio, SGLang; LM Studio with llama.cpp; TGI.
	windowText = regexp.MustCompile(`(?i)^(?:` +
		`(?:'max_tokens'[ a-z_']{1,60} too large: \d+\. )?(?:this model's|you passed|trying to keep|requested token)` +
		`.{1,120}? context length (?:is|of)(?: only)? (\d+)|` +
		`(?:the number of tokens to keep|cannot truncate prompt).{1,120}? n_ctx(?:: | \()(\d+)|` +
		"(?:input validation error: )?`inputs` (?:tokens \\+ `max_new_tokens` must be <=|must have less than) (\\d+))")
	// The prompt, in messages with the window. A number with the output, or that is only a lower bound, is not its size.
	promptText = regexp.MustCompile(
		`(?i)(at least )?\b(\d+) (?:input tokens|tokens from the input|in (?:the|your) (?:messages|prompt))|` +
			`\b(?:resulted in|given:) (\d+)\b`)
)

// Refusal returns the numbers of tokens that the message of a refusal names: of the prompt, and of the
// window. 0 means that a number is missing. If the prompt is not longer than the window, the server has refused it
// because the answer did not fit, too.
func Refusal(message string) (prompt, window int64) {
	if m := bothText.FindStringSubmatch(message); m != nil {
		numbers := strings.Fields(strings.Join(m[1:], " "))
		return Tokens(numbers[0]), Tokens(numbers[1])
	}
	m := windowText.FindStringSubmatch(message)
	if m == nil {
		return 0, 0
	}
	window = Tokens(strings.Join(m[1:], ""))
	if m := promptText.FindStringSubmatch(message); m != nil && m[1] == "" {
		prompt = Tokens(m[2] + m[3])
	}
	return prompt, window
}

// Tokens parses a number of tokens. It returns 0 for anything else.
func Tokens[T ~string | ~[]byte](digits T) int64 {
	if n, err := strconv.ParseInt(string(digits), 10, 64); err == nil && n > 0 && n <= Max {
		return n
	}
	return 0
}
