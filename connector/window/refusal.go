package window

import (
	"regexp"
	"strconv"
)

// Texts of refusals. They match at the beginning of a message alone, as servers repeat texts of clients in the rest.
var (
	// Both numbers: llama.cpp, SGLang, Ollama with MLX.
	bothText = regexp.MustCompile(
		`(?i)^(?:the )?(?:request|input)[ a-z]*\((\d+) tokens\) (?:exceeds|is longer)[^()]* context [^()]*\((\d+) tokens\)`)
	// The window: vLLM and OpenAI, LM Studio, SGLang.
	windowText = regexp.MustCompile(
		`(?i)^(?:this model's|you passed|trying to keep|requested token).{1,120}? context length (?:is|of)(?: only)? (\d+)`)
	// The prompt next to that. A number that includes the output, or is only a lower bound, is not its size.
	promptText = regexp.MustCompile(
		`(?i)(at least )?\b(\d+) (?:input tokens|tokens from the input|in the (?:messages|prompt))|` +
			`\bresulted in (\d+) tokens`)
)

// Refusal returns the numbers of tokens that the message of a refusal names: of the prompt, and of the
// window. 0 means that a number is missing.
func Refusal(message string) (prompt, window int64) {
	if m := bothText.FindStringSubmatch(message); m != nil {
		return Tokens(m[1]), Tokens(m[2])
	}
	m := windowText.FindStringSubmatch(message)
	if m == nil {
		return 0, 0
	}
	window = Tokens(m[1])
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
