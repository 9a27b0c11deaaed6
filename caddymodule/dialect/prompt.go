package dialect

import (
	"crypto/sha256"
	"encoding/binary"
)

// Prompt is the part of an upstream's request that the model reads, for
// counting its tokens.
type Prompt struct {
	messages [][]byte // each a JSON object
	tools    []byte   // a JSON array, nil if there are none
	lastUser int      // index of the last message of the user, -1 if there is none
}

// NewPrompt takes the messages and tools of a chat request, as JSON; tools may
// be nil. What is no array counts as empty, and there are no messages behind
// the first maxElements. The bytes are kept, and must not change.
func NewPrompt(messages, tools []byte) *Prompt {
	p := &Prompt{lastUser: -1}
	if len(tools) > 0 && tools[0] == '[' && isFilled(tools) {
		p.tools = tools
	}
	if len(messages) == 0 || messages[0] != '[' {
		return p
	}
	for m := membersOf(messages, 0); len(p.messages) < maxElements && m.next(); {
		if roleOf(m.raw()) == "user" {
			p.lastUser = len(p.messages)
		}
		p.messages = append(p.messages, m.raw())
	}
	return p
}

// roleOf is a message's role.
func roleOf(message []byte) (role string) {
	for m := membersOf(message, 0); m.next(); {
		if string(m.name()) == "role" && isString(m.raw()) {
			role = unquote(m.raw())
		}
	}
	return role
}

// promptSum is a hash of the beginning of a prompt.
type promptSum [16]byte

// sums are the hashes of a prompt of some deployment: the i-th is of its
// tools and its first i messages. A prompt that goes on from another begins
// with the same ones.
func (p *Prompt) sums(deployment string) []promptSum {
	sums := make([]promptSum, 0, len(p.messages)+1)
	last := chain(chain(promptSum{}, []byte(deployment)), p.tools)
	sums = append(sums, last)
	for _, m := range p.messages {
		last = chain(last, m)
		sums = append(sums, last)
	}
	return sums
}

// chain is the hash of what sum stands for with text behind it.
func chain(sum promptSum, text []byte) promptSum {
	h := sha256.New()
	h.Write(sum[:])
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(text)))
	h.Write(size[:])
	h.Write(text)
	return promptSum(h.Sum(nil)[:len(promptSum{})])
}
