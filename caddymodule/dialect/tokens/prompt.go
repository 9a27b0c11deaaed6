package tokens

import (
	"bytes"
	"hash/maphash"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Prompt is the part of an upstream's request that becomes the model's prompt. It keeps hashes of its beginnings, and
// gets the text again to count its tokens.
type Prompt struct {
	text       func() (messages, tools []byte)
	beginnings []beginning  // up to each message of the user, and each message after the last of these
	lastUser   int          // index of the last message of the user, -1 if there is none
	size       int          // bytes, without messages with media
	tools      bool         // there are tools
	few        [4]beginning // room for those of a short prompt
}

// beginning identifies the first messages of a prompt, after its tools.
type beginning struct {
	sum      uint64
	messages int
}

const (
	maxMessages   = 100_000 // of a prompt
	maxBeginnings = 1 << 10 // the latest of a prompt, at least; few clients go back further
)

// seed is the seed of the hashes of prompts. It differs in each process and no hash leaves the process, so a client
// cannot search for two prompts with one hash. By chance, two of n prompts have one with a probability of n²/2^65; a
// count of another key is found only if a hash of 64 bits of the keys is the same, too.
var seed = maphash.MakeSeed()

// NewPrompt returns the prompt with the JSON messages and tools of a chat request, which text returns. They must be
// valid. Values other than arrays are ignored, as are messages beyond maxMessages.
func NewPrompt(text func() (messages, tools []byte)) *Prompt {
	p := &Prompt{text: text, lastUser: -1}
	p.beginnings = p.few[:0]
	messages, tools := p.Text()
	p.tools, p.size = len(tools) > 0, len(tools)
	sum, users := maphash.Bytes(seed, tools), 0
	for m := jsonscan.Checked(messages); m.Next() && m.Index < maxMessages; {
		raw := m.Raw()
		sum = maphash.Comparable(seed, [2]uint64{sum, maphash.Bytes(seed, raw)})
		if !bytes.Contains(raw, []byte(";base64,")) {
			p.size += len(raw)
		}
		if len(p.beginnings) == 2*maxBeginnings {
			p.beginnings = append(p.beginnings[:0], p.beginnings[maxBeginnings:]...)
			users = max(users-maxBeginnings, 0)
		}
		if ofUser(raw) { // templates drop the thinking before it, so what ends there has another count now
			p.lastUser, p.beginnings = m.Index, p.beginnings[:users]
			users++
		}
		p.beginnings = append(p.beginnings, beginning{sum, m.Index + 1})
	}
	return p
}

// Text returns the arrays of messages and tools, nil if there are none.
func (p *Prompt) Text() (messages, tools []byte) {
	messages, tools = p.text()
	return array(messages), array(tools)
}

// array returns an array that is not empty, and nil for all other values.
func array(raw []byte) []byte {
	if jsonscan.IsArray(raw) && jsonscan.IsFilled(raw) {
		return raw
	}
	return nil
}

// ofUser reports whether a message is the user's.
func ofUser(message []byte) bool {
	for m := jsonscan.Checked(message); m.Next(); {
		if string(m.Name()) == "role" {
			return string(m.Raw()) == `"user"`
		}
	}
	return false
}

// implausible reports whether a prompt has many more bytes than text of this many tokens usually has.
func (p *Prompt) implausible(tokens int) bool { return p.size > MaxBytesPerToken*tokens }
