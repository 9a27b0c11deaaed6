package window

import (
	"encoding/json"
	"regexp"
	"strconv"
)

// Texts of refusals. They match at the beginning of a message alone, which the client of the request does not choose.
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

// Refusal returns the numbers of tokens that an error body names: of the prompt, if it is known and
// exceeds the window, and of the window. 0 means that a number is missing.
func Refusal(body []byte) (prompt, window int64) {
	const levels = 4 // servers and proxies nest errors, also as text
	prompt, window = numbers(body, levels)
	if prompt <= window {
		prompt = 0
	}
	return prompt, window
}

func numbers(body []byte, levels int) (prompt, window int64) {
	var object struct {
		Prompt  json.RawMessage `json:"n_prompt_tokens"`
		Window  json.RawMessage `json:"n_ctx"`
		Error   json.RawMessage
		Message json.RawMessage
	}
	if levels == 0 || json.Unmarshal(body, &object) != nil {
		return inText(string(body[:min(len(body), 500)]))
	}
	if window = Tokens(object.Window); window > 0 {
		return Tokens(object.Prompt), window
	}
	for _, nested := range [][]byte{object.Error, object.Message} {
		var text string
		if json.Unmarshal(nested, &text) == nil {
			nested = []byte(text)
		}
		if prompt, window = numbers(nested, levels-1); window > 0 {
			break
		}
	}
	return prompt, window
}

// inText reads the numbers from the text of a refusal.
func inText(text string) (prompt, window int64) {
	if m := bothText.FindStringSubmatch(text); m != nil {
		return Tokens([]byte(m[1])), Tokens([]byte(m[2]))
	}
	m := windowText.FindStringSubmatch(text)
	if m == nil {
		return 0, 0
	}
	window = Tokens([]byte(m[1]))
	if m := promptText.FindStringSubmatch(text); m != nil && m[1] == "" {
		prompt = Tokens([]byte(m[2] + m[3]))
	}
	return prompt, window
}

// Tokens parses a number of tokens. It returns 0 for anything else.
func Tokens(digits []byte) int64 {
	if n, err := strconv.ParseInt(string(digits), 10, 64); err == nil && n > 0 && n <= Max {
		return n
	}
	return 0
}
