package tokens

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Prompt is the part of an upstream's request that becomes the model's prompt.
type Prompt struct {
	Messages [][]byte // each a JSON object
	Tools    []byte   // a JSON array, nil if there are none
	lastUser int      // index of the last message of the user, -1 if there is none
}

// maxMessages is the maximum number of messages of a prompt.
const maxMessages = 100_000

// NewPrompt returns the prompt with the JSON messages and tools of a chat request. Values
// other than arrays are ignored, as are messages beyond maxMessages. The prompt retains
// the bytes, which must not be modified.
func NewPrompt(messages, tools []byte) *Prompt {
	p := &Prompt{lastUser: -1}
	if len(tools) > 0 && tools[0] == '[' && jsonscan.IsFilled(tools) {
		p.Tools = tools
	}
	if len(messages) == 0 || messages[0] != '[' {
		return p
	}
	for m := jsonscan.MembersAt(messages, 0); len(p.Messages) < maxMessages && m.Next(); {
		if ofUser(m.Raw()) {
			p.lastUser = len(p.Messages)
		}
		p.Messages = append(p.Messages, m.Raw())
	}
	return p
}

// ofUser reports whether a message is the user's.
func ofUser(message []byte) bool { return jsonscan.Text(message, "role") == "user" }

// Implausible reports whether a prompt has many more bytes than text of this many tokens usually has.
func (p *Prompt) Implausible(tokens int) bool {
	size := len(p.Tools)
	for _, m := range p.Messages {
		if !bytes.Contains(m, []byte(";base64,")) { // media
			size += len(m)
		}
	}
	return size > MaxBytesPerToken*tokens
}

// promptSum is a hash of a prefix of a prompt.
type promptSum [16]byte

// sums returns the hashes of a key's prompt for a deployment. The i-th covers the tools and
// the first i messages. A prompt that continues another one starts with the same hashes.
func (p *Prompt) sums(deployment, key string) []promptSum {
	var last promptSum // of all input so far
	hash := sha256.New()
	add := func(text []byte) promptSum {
		hash.Reset()
		hash.Write(last[:])
		var buf [sha256.Size]byte
		hash.Write(binary.LittleEndian.AppendUint64(buf[:0], uint64(len(text))))
		hash.Write(text)
		last = promptSum(hash.Sum(buf[:0])[:len(last)])
		return last
	}
	add([]byte(deployment))
	add([]byte(key))
	sums := append(make([]promptSum, 0, len(p.Messages)+1), add(p.Tools))
	for _, m := range p.Messages {
		sums = append(sums, add(m))
	}
	return sums
}
