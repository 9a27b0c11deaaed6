package dialect

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
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
	c := chain{hash: sha256.New()}
	c.add([]byte(deployment))
	sums = append(sums, c.add(p.tools))
	for _, m := range p.messages {
		sums = append(sums, c.add(m))
	}
	return sums
}

// chain hashes a sequence of texts so that each beginning of it has a hash.
type chain struct {
	hash hash.Hash
	last promptSum
}

// add appends a text to the sequence, and returns the hash of all so far.
func (c *chain) add(text []byte) promptSum {
	c.hash.Reset()
	c.hash.Write(c.last[:])
	var buf [sha256.Size]byte
	c.hash.Write(binary.LittleEndian.AppendUint64(buf[:0], uint64(len(text))))
	c.hash.Write(text)
	c.last = promptSum(c.hash.Sum(buf[:0])[:len(promptSum{})])
	return c.last
}
