// Package tokens counts the tokens of prompts: by a tokenizer, corrected by what
// the model servers themselves have counted.
package tokens

import (
	"context"
	"hash/maphash"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// o200k is the tokenizer of which counts are estimates of any model's: of
// those that fit into a Go program, it is nearest to what current models use.
// Its vocabulary takes some 40 ms and 20 MiB to set up, hence not before the
// first use.
var o200k = sync.OnceValue(codec.NewO200kBase)

const (
	maxCounted  = 2 << 20 // bytes of one prompt that are tokenised; the rest is extrapolated
	countPiece  = 4 << 10 // bytes in one go: a text without spaces costs more than its length
	countSpace  = 256     // bytes of white space in one go, which cost the square of their number
	maxMeasured = 1000    // images of one prompt whose size is looked at, which costs some 30 µs each
	cachedText  = 128     // bytes from which on a text's count is remembered
	cachedTexts = 1 << 15 // texts in one of the two generations that are remembered
)

// Counter estimates how many tokens a prompt has. It remembers the counts
// of texts that it has seen, by hash, as agents send their whole conversation
// again with each turn. It is safe for concurrent use.
type Counter struct {
	seed maphash.Seed

	mu         sync.Mutex
	young, old map[uint64]int32 // old is dropped when young is full
}

// NewCounter returns a counter that has seen nothing.
func NewCounter() *Counter {
	return &Counter{seed: maphash.MakeSeed(), young: make(map[uint64]int32)}
}

// Text is the number of o200k tokens of a text. Words are cut at every 4 KiB,
// and white space at every 256 bytes, which adds less than a token to each.
func (c *Counter) Text(s string) int {
	n, _ := c.text(context.Background(), s)
	return n
}

// text is Text; false if ctx ended before the text.
func (c *Counter) text(ctx context.Context, s string) (n int, ok bool) {
	if len(s) < cachedText {
		return tokenise(ctx, s)
	}
	key := maphash.String(c.seed, s)
	if n, ok := c.known(key); ok {
		return n, true
	}
	if n, ok = tokenise(ctx, s); ok {
		c.keep(key, n)
	}
	return n, ok
}

// tokenise counts a text's tokens; false if ctx ended before the text.
func tokenise(ctx context.Context, s string) (n int, ok bool) {
	for len(s) > 0 {
		if ctx.Err() != nil {
			return 0, false
		}
		end := pieceEnd(s)
		// Text that is not UTF-8 is counted as it is; the tokenizer knows no
		// other error than that of its pattern, which has no time limit.
		k, err := o200k().Count(s[:end])
		if err != nil {
			k = (end + 3) / 4
		}
		n += k
		s = s[end:]
	}
	return n, true
}

// pieceEnd is how much of a text is tokenised in one go, in bytes.
func pieceEnd(s string) int {
	end := min(len(s), countPiece)
	for cut := end; end < len(s) && cut > end-utf8.UTFMax; cut-- {
		if utf8.RuneStart(s[cut]) {
			end = cut
			break
		}
	}
	word := 0 // where the last word ended, about
	for i, r := range s[:end] {
		switch {
		case !unicode.IsSpace(r):
			word = i + 1
		case i-word >= countSpace:
			return i
		}
	}
	return end
}

// known looks a text's count up.
func (c *Counter) known(key uint64) (int, bool) {
	c.mu.Lock()
	n, ok := c.young[key]
	isOld := false
	if !ok {
		n, isOld = c.old[key]
	}
	c.mu.Unlock()
	if isOld {
		c.keep(key, int(n))
	}
	return int(n), ok || isOld
}

// keep puts a text's count among the young ones.
func (c *Counter) keep(key uint64, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young) >= cachedTexts {
		c.old, c.young = c.young, make(map[uint64]int32)
	}
	c.young[key] = int32(n)
}

// Estimate is what a prompt costs by the tokenizer's count and by what models'
// templates add on average, before any calibration.
type Estimate struct {
	Tokens int
	Tools  bool // tools are part of it
	Media  bool // so are images, sound or files, whose cost is a guess
}

// What a prompt costs in addition to its texts, in tokens.
const (
	tokensPerPrompt  = 3
	tokensPerMessage = 4
	tokensPerTool    = 8
	tokensOfToolTalk = 40 // what templates add about tools in general
)

// Estimate estimates a prompt.
func (c *Counter) Estimate(p *Prompt) Estimate {
	return c.estimateFrom(context.Background(), p, 0)
}

// estimateFrom estimates the messages of a prompt from the n-th on, and all
// else of it if n is 0. When ctx ends, so does the counting, too early.
func (c *Counter) estimateFrom(ctx context.Context, p *Prompt, n int) Estimate {
	t := tally{ctx: ctx, counter: c, left: maxCounted}
	if n == 0 {
		t.add(tokensPerPrompt)
		t.tools(p.Tools)
	}
	for i := n; i < len(p.Messages) && ctx.Err() == nil; i++ {
		t.add(tokensPerMessage)
		t.message(p.Messages[i], i > p.lastUser)
	}
	return Estimate{Tokens: t.total(), Tools: len(p.Tools) > 0, Media: t.media}
}

// tally adds one prompt up.
type tally struct {
	ctx     context.Context
	counter *Counter
	fixed   int // tokens of what is not text
	counted int // tokens of the texts that were tokenised
	bytes   int // of those
	skipped int // bytes of the texts beyond the limit
	left    int // bytes that may still be tokenised
	images  int // that were there
	media   bool
}

// add adds tokens of what is not text.
func (t *tally) add(tokens int) { t.fixed += tokens }

// text adds a text.
func (t *tally) text(s string) {
	n := min(len(s), t.left)
	t.skipped += len(s) - n
	if n == 0 {
		return
	}
	t.left -= n
	t.bytes += n
	tokens, ok := t.counter.text(t.ctx, s[:n])
	if !ok {
		t.left = 0
	}
	t.counted += tokens
}

// total is the sum, with what was skipped at the rate of what was not.
func (t *tally) total() int {
	n := t.fixed + t.counted
	if t.skipped > 0 {
		n += int(float64(t.skipped)*float64(t.counted)/float64(t.bytes)) + 1
	}
	return n
}

// tools adds a JSON array of tools: their JSON, as templates render much the
// same.
func (t *tally) tools(raw []byte) {
	if len(raw) == 0 {
		return
	}
	t.add(tokensOfToolTalk)
	for m := jsonscan.At(raw, 0); m.Next(); {
		t.add(tokensPerTool)
		t.text(string(m.Raw()))
	}
}

// message adds a message. Thinking counts only where templates keep it: in the
// turn that is going on.
func (t *tally) message(raw []byte, current bool) {
	thought := !current
	for m := jsonscan.At(raw, 0); m.Next(); {
		value := m.Raw()
		switch string(m.Name()) {
		case "role", "name", "refusal":
			t.str(value)
		case "content":
			t.content(value)
		case "tool_calls":
			t.calls(value)
		case "reasoning_content", "reasoning", "thinking": // the same under several names
			if !thought && jsonscan.IsFilled(value) {
				thought = true
				t.str(value)
			}
		}
	}
}

// str adds a value that should be a string.
func (t *tally) str(raw []byte) {
	if jsonscan.IsString(raw) {
		t.text(jsonscan.Unquote(raw))
	}
}

// content adds a message's content: a text, or parts.
func (t *tally) content(raw []byte) {
	if len(raw) == 0 || raw[0] != '[' {
		t.str(raw)
		return
	}
	for m := jsonscan.At(raw, 0); m.Next(); {
		for part := jsonscan.At(m.Raw(), 0); part.Next(); {
			switch string(part.Name()) {
			case "text", "refusal":
				t.str(part.Raw())
			case "image_url":
				t.image(part.Raw())
			case "input_audio", "file":
				t.media = true
				t.add(tokensOfUnknownImage)
			}
		}
	}
}

// image adds an image part's image_url: an object with its url, or the url.
func (t *tally) image(raw []byte) {
	t.media = true
	if t.images++; t.images > maxMeasured {
		t.add(tokensOfUnknownImage)
		return
	}
	if len(raw) > 0 && raw[0] == '{' {
		raw = jsonscan.Member(raw, "url")
	}
	t.add(imageTokens(raw))
}

// calls adds an assistant's tool calls.
func (t *tally) calls(raw []byte) {
	for m := jsonscan.At(raw, 0); m.Next(); {
		t.add(tokensPerMessage)
		for call := jsonscan.At(m.Raw(), 0); call.Next(); {
			if string(call.Name()) != "function" {
				continue
			}
			for f := jsonscan.At(call.Raw(), 0); f.Next(); {
				if jsonscan.IsString(f.Raw()) {
					t.str(f.Raw())
				} else {
					t.text(string(f.Raw()))
				}
			}
		}
	}
}
