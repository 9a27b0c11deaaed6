// Package tokens counts the tokens of prompts with a tokenizer, calibrated by the counts of
// the model servers.
package tokens

import (
	"bytes"
	"context"
	"hash/maphash"
	"strings"
	"unicode"
	"unicode/utf8"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

const (
	maxCounted  = 2 << 20 // bytes of a prompt that are tokenized; the rest is extrapolated
	countPiece  = 4 << 10 // bytes per piece; the cost of text without spaces grows faster than its length
	countSpace  = 256     // bytes of white space per piece, whose cost is quadratic
	maxMeasured = 1000    // images of a prompt whose size is read, which takes about 30 µs each
	cachedText  = 128     // minimum size in bytes of texts whose count is cached
	cachedTexts = 1 << 15 // texts in the cache
)

// Counter estimates the tokens of prompts. It caches the counts of each API key's texts,
// because agents resend the whole conversation with each turn. Keys do not share counts,
// because the time to count a text would reveal whether another key has sent it. It is safe for
// concurrent use.
type Counter struct {
	seed  maphash.Seed
	texts *lru.Cache[keyText, int32]
}

// keyText identifies a text of an API key.
type keyText struct {
	key  string
	hash uint64
}

// NewCounter returns a counter with an empty cache.
func NewCounter() *Counter {
	texts, _ := lru.New[keyText, int32](cachedTexts) // no error: the size is positive
	return &Counter{seed: maphash.MakeSeed(), texts: texts}
}

// Text returns the number of o200k tokens of a key's text. It splits words every 4 KiB and white
// space every 256 bytes, which adds less than one token per piece.
func (c *Counter) Text(key, s string) int {
	n, _ := c.text(context.Background(), key, s)
	return n
}

// text implements Text. It returns false if ctx was done first.
func (c *Counter) text(ctx context.Context, key, s string) (n int, ok bool) {
	if len(s) < cachedText {
		return tokenise(ctx, s)
	}
	id := keyText{key, maphash.String(c.seed, s)}
	if n, ok := c.texts.Get(id); ok {
		return int(n), true
	}
	if n, ok = tokenise(ctx, s); ok {
		c.texts.Add(id, int32(n))
	}
	return n, ok
}

// tokenise counts the tokens of a text. It returns false if ctx was done first.
func tokenise(ctx context.Context, s string) (n int, ok bool) {
	m := merger{vocabulary: o200k()}
	for len(s) > 0 {
		if ctx.Err() != nil {
			return 0, false
		}
		end := pieceEnd(s)
		for piece := s[:end]; len(piece) > 0; {
			next := nextPiece(piece)
			n += m.count(piece[:next])
			piece = piece[next:]
		}
		s = s[end:]
	}
	return n, true
}

// pieceEnd returns the length of the next piece to tokenize, in bytes.
func pieceEnd(s string) int {
	end := min(len(s), countPiece)
	for cut := end; end < len(s) && cut > end-utf8.UTFMax; cut-- {
		if utf8.RuneStart(s[cut]) {
			end = cut
			break
		}
	}
	word := 0 // approximate end of the last word
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

// Estimate is the uncalibrated estimate of a prompt: the tokenizer's count and the average
// overhead of chat templates.
type Estimate struct {
	Tokens int
	Tools  bool // the prompt has tools
	Media  bool // the prompt has images, audio or files, whose cost is a guess
}

// The overhead of a prompt in tokens.
const (
	tokensPerPrompt  = 3
	tokensPerMessage = 4
	tokensPerTool    = 8
	tokensOfToolTalk = 40 // general instructions about tools in templates
)

// Estimate estimates a key's prompt.
func (c *Counter) Estimate(key string, p *Prompt) Estimate {
	return c.tally(context.Background(), key, p, 0).estimate(p)
}

// tally counts the messages of a prompt starting with the n-th. If n is 0, it includes the rest of the prompt. If ctx
// is done, it returns early.
func (c *Counter) tally(ctx context.Context, key string, p *Prompt, n int) *tally {
	t := &tally{ctx: ctx, counter: c, key: key, left: maxCounted}
	messages, tools := p.Text()
	if n == 0 {
		t.add(tokensPerPrompt)
		t.tools(tools)
	}
	for m := jsonscan.Checked(messages); m.Next() && m.Index < maxMessages && ctx.Err() == nil; {
		if m.Index >= n {
			t.add(tokensPerMessage)
			t.message(m.Raw(), m.Index > p.lastUser)
		}
	}
	return t
}

// estimate returns the estimate of all that was counted of a prompt.
func (t *tally) estimate(p *Prompt) Estimate {
	return Estimate{Tokens: t.total(), Tools: p.tools, Media: t.media}
}

// tally sums up the tokens of a prompt.
type tally struct {
	ctx     context.Context
	counter *Counter
	key     string // the API key's id
	fixed   int    // tokens of other parts than text
	counted int    // tokens of the tokenized texts
	bytes   int    // bytes of the tokenized texts
	skipped int    // bytes of the texts beyond the limit
	left    int    // bytes that may still be tokenized
	images  int    // number of images so far
	media   bool
	answer  bool // the message is the assistant's

	// Of the common text, which every chat template passes to the model: tokens, bytes, bytes that are not ASCII.
	common, commonBytes, wideBytes int
}

// add adds tokens of other parts than text.
func (t *tally) add(tokens int) { t.fixed += tokens }

// count adds a text, and returns its tokens.
func (t *tally) count(s string) int {
	n := min(len(s), t.left)
	t.skipped += len(s) - n
	if n == 0 {
		return 0
	}
	t.left -= n
	t.bytes += n
	tokens, ok := t.counter.text(t.ctx, t.key, s[:n])
	if !ok {
		t.left = 0
	}
	t.counted += tokens
	return tokens
}

// addCommon adds a text, which was already counted, perhaps in another form, to the common text.
func (t *tally) addCommon(s string, tokens int) {
	t.common += tokens
	t.commonBytes += len(s)
	for i := range len(s) {
		t.wideBytes += int(s[i] >> 7)
	}
}

// countCommon is addCommon for a text whose tokens in this form are not known.
func (t *tally) countCommon(s string) {
	if t.left > 0 {
		n, _ := t.counter.text(t.ctx, t.key, s)
		t.addCommon(s, n)
	}
}

// total returns the sum. Skipped text is extrapolated from the tokenized text.
func (t *tally) total() int {
	n := t.fixed + t.counted
	if t.skipped > 0 {
		n += int(float64(t.skipped)*float64(t.counted)/float64(t.bytes)) + 1
	}
	return n
}

// tools adds a JSON array of tools. Most templates render tools as similar JSON, and all render their names and
// descriptions, and those of their parameters; gpt-oss declares the parameters in TypeScript, which is shorter.
func (t *tally) tools(raw []byte) {
	if len(raw) == 0 {
		return
	}
	t.add(tokensOfToolTalk)
	for m := jsonscan.MembersAt(raw, 0); m.Next(); {
		t.add(tokensPerTool)
		t.count(string(m.Raw()))
		function := jsonscan.Member(m.Raw(), "function")
		text := []byte(jsonscan.Text(function, "name") + "\n" + jsonscan.Text(function, "description"))
		for p := jsonscan.Object(jsonscan.Member(jsonscan.Member(function, "parameters"), "properties")); p.Next(); {
			text = append(append(append(text, '\n'), p.Name()...), jsonscan.Text(p.Raw(), "description")...)
		}
		t.countCommon(string(text))
	}
}

// message adds a message. Thinking is added only after the last message of the user, because
// templates drop it elsewhere. It is not common text: some drop all of it.
func (t *tally) message(raw []byte, current bool) {
	thought := !current
	t.answer = jsonscan.Text(raw, "role") == "assistant"
	for m := jsonscan.Object(raw); m.Next(); {
		value := m.Raw()
		switch string(m.Name()) {
		case "role", "name", "refusal":
			t.str(value)
		case "content":
			t.content(value)
		case "tool_calls":
			t.calls(value)
		case "reasoning_content", "reasoning", "thinking": // the same text under several names
			if !thought && jsonscan.IsFilled(value) {
				thought = true
				t.count(jsonscan.Unquote(value))
			}
		}
	}
}

// thinkClose ends thinking within the content of an answer. Many templates drop what comes before.
const thinkClose = "</think>"

// str adds a value that should be a string.
func (t *tally) str(raw []byte) {
	if !jsonscan.IsString(raw) {
		return
	}
	text := jsonscan.Unquote(raw)
	n, thought := t.count(text), strings.LastIndex(text, thinkClose)
	if t.answer && thought >= 0 {
		t.countCommon(text[thought+len(thinkClose):])
		return
	}
	t.addCommon(text, n)
}

// content adds a message's content, a string or a list of parts.
func (t *tally) content(raw []byte) {
	if !jsonscan.IsArray(raw) {
		t.str(raw)
		return
	}
	for m := jsonscan.MembersAt(raw, 0); m.Next(); {
		for part := jsonscan.Object(m.Raw()); part.Next(); {
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

// image adds the image_url of an image part, which is a URL or an object with one.
func (t *tally) image(raw []byte) {
	t.media = true
	if t.images++; t.images > maxMeasured {
		t.add(tokensOfUnknownImage)
		return
	}
	if jsonscan.IsObject(raw) {
		raw = jsonscan.Member(raw, "url")
	}
	t.add(imageTokens(raw))
}

// calls adds an assistant's tool calls. Some templates render the strings in the arguments without escapes.
func (t *tally) calls(raw []byte) {
	for m := jsonscan.MembersAt(raw, 0); m.Next(); {
		t.add(tokensPerMessage)
		for f := jsonscan.Object(jsonscan.Member(m.Raw(), "function")); f.Next(); {
			text := f.Raw()
			if jsonscan.IsString(text) {
				text = []byte(jsonscan.Unquote(text))
			}
			if n := t.count(string(text)); bytes.IndexByte(text, '\\') < 0 || !jsonscan.Valid(text) {
				t.addCommon(string(text), n)
			} else {
				t.countCommon(jsonscan.Unescape(text))
			}
		}
	}
}
