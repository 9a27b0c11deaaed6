package tokens

import "context"

// Size is what is known of the tokens of a prompt before a model server has counted it.
type Size struct {
	// Known is the server's count of the longest usable beginning, of this key and through this connector; 0: none.
	Known int
	// Rest is the own count of what follows: the tokenizer's, with the overhead of templates and a guess for media.
	Rest int

	common int  // tokens of the text in Rest that every chat template passes to the model
	wide   bool // more than a tenth of the bytes of that text are not ASCII
}

// Tokenizers of models need fewer tokens than the gateway's by these factors at most, measured with those of Qwen 3,
// Gemma 3, DeepSeek V3, Llama 3 and gpt-oss: Chinese needs 0.71 of them.
const (
	maxFactor     = 1.25
	maxWideFactor = 1.5
)

// size returns the size of a prompt of whose first messages the count is known.
func (c *Calibration) size(ctx context.Context, key string, p *Prompt, known, messages int) Size {
	t := c.counter.tally(ctx, key, p, messages)
	return Size{Known: known, Rest: t.total(), common: t.common, wide: 10*t.wideBytes > t.commonBytes}
}

// Min returns a number of tokens that the prompt surely reaches.
func (s Size) Min() int {
	factor := maxFactor
	if s.wide {
		factor = maxWideFactor
	}
	return s.Known + int(float64(s.common)/factor)
}

// Max returns the tokens that the prompt hardly exceeds.
func (s Size) Max() int { return int(1.05 * float64(s.Known+s.Rest)) }

// Doubt is why a model server's count of a prompt is not used.
type Doubt int

// The doubts.
const (
	None Doubt = iota
	Low        // it is too low for a prompt that continues a known one: the server may have cut it, or counts differently
	Cut        // it is too low for any tokenizer and cache: the server has cut the prompt
)

// Doubt returns the doubt about a count of the prompt. A server that leaves out what it has cached still counts the
// rest.
func (s Size) Doubt(n int) Doubt {
	switch {
	case 2*n < s.common:
		return Cut
	case n < s.Known+s.common/2:
		return Low
	}
	return None
}
