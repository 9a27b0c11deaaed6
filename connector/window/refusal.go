package window

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
)

// Texts of refusals.
var (
	// Both numbers: llama.cpp, SGLang and Ollama; Anthropic and this gateway.
	bothText = regexp.MustCompile(
		`(?is)\((\d+) tokens\).*?(?:exceed|longer).*?\((\d+) tokens\)|(\d+) tokens > (\d+) maximum`)
	// The window: vLLM, OpenAI, SGLang.
	windowText = regexp.MustCompile(`(?i)context length (?:is|of)(?: only)? (\d+)`)
	// The prompt next to that. A number that includes the output, or is only a lower bound, is not its size.
	promptText = regexp.MustCompile(
		`(?i)(at least )?\b(\d+) (?:input tokens|tokens from the input|in the (?:messages|prompt))|` +
			`\bresulted in (\d+) tokens`)
)

// Refusal returns the numbers of tokens that an error body names: of the prompt, if it is known and
// exceeds the window, and of the window. 0 means that a number is missing.
func Refusal(body []byte) (prompt, window int64) {
	const maxBody = 1 << 20 // enough for any real error
	prompt, window = numbers(body[:min(len(body), maxBody)], 0)
	if prompt <= window {
		prompt = 0
	}
	return prompt, window
}

// numbers reads one level of an error body. Servers and proxies nest errors, also as text.
func numbers(data []byte, level int) (prompt, window int64) {
	const (
		deepest = 4
		maxText = 2 << 10
	)
	data = bytes.TrimSpace(data)
	var object struct {
		Prompt  json.RawMessage `json:"n_prompt_tokens"`
		Window  json.RawMessage `json:"n_ctx"`
		Error   json.RawMessage `json:"error"`
		Message json.RawMessage `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if level == deepest || json.Unmarshal(data, &object) != nil {
		return inText(string(data[:min(len(data), maxText)]))
	}
	if window = Tokens(string(object.Window)); window > 0 {
		return Tokens(string(object.Prompt)), window
	}
	for _, nested := range [][]byte{object.Error, object.Message, object.Detail} {
		var text string
		if json.Unmarshal(nested, &text) == nil {
			nested = []byte(text)
		}
		if prompt, window = numbers(nested, level+1); window > 0 {
			break
		}
	}
	return prompt, window
}

// inText reads the numbers from the text of a refusal.
func inText(text string) (prompt, window int64) {
	if m := bothText.FindStringSubmatch(text); m != nil {
		return Tokens(m[1] + m[3]), Tokens(m[2] + m[4])
	}
	m := windowText.FindStringSubmatch(text)
	if m == nil {
		return 0, 0
	}
	window = Tokens(m[1])
	if m := promptText.FindStringSubmatch(text); m != nil && m[1] == "" {
		prompt = Tokens(m[2] + m[3])
	}
	return prompt, window
}

// Tokens parses a number of tokens. It returns 0 for anything else.
func Tokens(digits string) int64 {
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n > 0 && n <= Max {
		return n
	}
	return 0
}
