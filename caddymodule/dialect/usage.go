package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

// Usage is the token usage of an answer, as the upstream reported it or estimated.
type Usage struct {
	PromptTokens     int64
	CompletionTokens int64
	CachedTokens     int64 // part of PromptTokens
	ReasoningTokens  int64 // part of CompletionTokens
	Estimated        bool
}

// tokensOf estimates the tokens of a text from its size in bytes.
func tokensOf(size int64) int64 {
	const bytesPerToken = 4
	return (size + bytesPerToken - 1) / bytesPerToken
}

// parseUsage parses a usage object. ok is false for other values. Members that are missing
// or not integers are 0.
func parseUsage(raw []byte) (u Usage, ok bool) {
	if len(raw) == 0 || raw[0] != '{' {
		return Usage{}, false
	}
	for m := jsonscan.At(raw, 0); m.Next(); {
		switch string(m.Name()) {
		case "prompt_tokens":
			u.PromptTokens, _ = jsonscan.Integer(m.Raw())
		case "completion_tokens":
			u.CompletionTokens, _ = jsonscan.Integer(m.Raw())
		case "prompt_tokens_details":
			u.CachedTokens, _ = jsonscan.Integer(jsonscan.Member(m.Raw(), "cached_tokens"))
		case "completion_tokens_details":
			u.ReasoningTokens, _ = jsonscan.Integer(jsonscan.Member(m.Raw(), "reasoning_tokens"))
		}
	}
	return u, true
}
