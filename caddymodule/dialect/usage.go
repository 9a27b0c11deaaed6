package dialect

import (
	"slices"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Usage is the token usage of an answer, as the upstream reported it or estimated.
type Usage struct {
	PromptTokens     int64
	CompletionTokens int64
	CachedTokens     int64 // part of PromptTokens
	ReasoningTokens  int64 // part of CompletionTokens
	Estimated        bool
	Amount           float64 // in the unit of a [MediaCall], 0 if it is not known
}

// BytesPerToken is the usual size of a token of text that is not counted.
const BytesPerToken = 4

// tokensOf estimates the tokens of an answer from its size in bytes and from its number of
// pieces. Most model servers send a piece for each token. Pieces of an unusual size are not
// tokens.
func tokensOf(size, pieces int64) int64 {
	const minSize, maxSize = 2, 8
	if minSize*pieces <= size && size <= maxSize*pieces {
		return pieces
	}
	return (size + BytesPerToken - 1) / BytesPerToken
}

// maxTokens is more than any request or answer has. Its product with maxAnswers is an int64.
const maxTokens = 1 << 30

// parseUsage parses a usage object. ok is false for other values, and if there are no tokens
// in it. Members that are missing, or not plausible, are 0.
func parseUsage(raw []byte) (u Usage, ok bool) {
	if !jsonscan.IsObject(raw) {
		return Usage{}, false
	}
	for m := jsonscan.MembersAt(raw, 0); m.Next(); {
		switch string(m.Name()) {
		case "prompt_tokens":
			u.PromptTokens = tokenCount(m.Raw())
		case "completion_tokens":
			u.CompletionTokens = tokenCount(m.Raw())
		case "prompt_tokens_details":
			u.CachedTokens = tokenCount(jsonscan.Member(m.Raw(), "cached_tokens"))
		case "completion_tokens_details":
			u.ReasoningTokens = tokenCount(jsonscan.Member(m.Raw(), "reasoning_tokens"))
		}
	}
	return u, u.PromptTokens > 0 || u.CompletionTokens > 0
}

// tokenCount parses a number of tokens.
func tokenCount(raw []byte) int64 {
	if n, ok := jsonscan.Integer(raw); ok && n > 0 && n <= maxTokens {
		return n
	}
	return 0
}

// AnswerInfo describes an upstream's answer. The reader of the answer writes it, for traces if it is wanted.
type AnswerInfo struct {
	Wanted        bool
	ID            string
	FinishReasons []string // one for each choice that has ended, by index
	choices       []int64  // the indexes

	Window   int    // in tokens, of the model server that gets the request; 0: not known. The caller sets it
	Effort   string // the client's reasoning effort, if the upstream gets it, as it is or mapped; not in the chat dialect
	Tools    bool   // the request has tools; not in the chat dialect
	Reasoned bool   // the answer has reasoning; not in the chat dialect
}

// wanted reports whether to write it.
func (a *AnswerInfo) wanted() bool { return a != nil && a.Wanted }

// noteID notes the answer's id: the first one.
func (a *AnswerInfo) noteID(raw []byte) {
	if a.wanted() && a.ID == "" {
		a.ID = info(raw)
	}
}

// noteReason notes the finish_reason of a choice: the first one.
func (a *AnswerInfo) noteReason(choice int64, raw []byte) {
	if !a.wanted() || len(a.choices) == maxChoices {
		return
	}
	at, found := slices.BinarySearch(a.choices, choice)
	if reason := info(raw); reason != "" && !found {
		a.choices = slices.Insert(a.choices, at, choice)
		a.FinishReasons = slices.Insert(a.FinishReasons, at, reason)
	}
}

// info returns a string, "" for other values and for strings that are too long for a trace.
func info(raw []byte) string {
	const maxInfo = 128 // bytes
	if len(raw) > maxInfo {
		return ""
	}
	return jsonscan.String(raw)
}
