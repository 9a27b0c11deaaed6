package tokens

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Prompt is the part of an upstream's request that the model reads, for
// counting its tokens.
type Prompt struct {
	Messages [][]byte // each a JSON object
	Tools    []byte   // a JSON array, nil if there are none
	lastUser int      // index of the last message of the user, -1 if there is none
}

// maxMessages bounds the messages of one prompt.
const maxMessages = 100_000

// NewPrompt takes the messages and tools of a chat request, as JSON; tools may
// be nil. What is not an array counts as empty, and there are no messages behind
// the first maxMessages. The bytes are kept, and must not change.
func NewPrompt(messages, tools []byte) *Prompt {
	p := &Prompt{lastUser: -1}
	if len(tools) > 0 && tools[0] == '[' && jsonscan.IsFilled(tools) {
		p.Tools = tools
	}
	if len(messages) == 0 || messages[0] != '[' {
		return p
	}
	for m := jsonscan.At(messages, 0); len(p.Messages) < maxMessages && m.Next(); {
		if jsonscan.Text(m.Raw(), "role") == "user" {
			p.lastUser = len(p.Messages)
		}
		p.Messages = append(p.Messages, m.Raw())
	}
	return p
}

// promptSum is a hash of the beginning of a prompt.
type promptSum [16]byte

// sums are the hashes of a prompt of some deployment: the i-th is of its
// tools and its first i messages. A prompt that goes on from another begins
// with the same ones.
func (p *Prompt) sums(deployment string) []promptSum {
	var last promptSum // of all texts so far
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
	sums := append(make([]promptSum, 0, len(p.Messages)+1), add(p.Tools))
	for _, m := range p.Messages {
		sums = append(sums, add(m))
	}
	return sums
}
