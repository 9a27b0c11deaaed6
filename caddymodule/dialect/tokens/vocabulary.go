package tokens

import (
	_ "embed"
	"hash/maphash"
	"sync"
)

// o200kText is the vocabulary o200k_base of OpenAI's tiktoken (MIT license): the number of
// tokens in three bytes, the length of each token in one byte, and the tokens, both in the
// order of their ranks. `go test -run TestVocabulary -update` writes it.
//
//go:embed o200k.bin
var o200kText string

// o200k is the vocabulary that approximates the one of any model. Of those publicly
// available, it is closest to the vocabularies of current models. It is indexed on first
// use, which takes about 10 ms and 2 MiB.
var o200k = sync.OnceValue(func() *vocabulary { return newVocabulary(o200kText) })

// The vocabulary is a hash table without pointers. An entry has the rank of a token plus
// one in its lower bits, and bits of its hash above them. 0 is a free entry.
const (
	tableBits = 18 // three quarters of the entries are used
	rankMask  = 1<<tableBits - 1
)

// vocabulary maps the tokens of a tokenizer to their ranks. It is safe for concurrent use.
type vocabulary struct {
	seed  maphash.Seed
	text  string   // the tokens, by rank
	ends  []uint32 // of the tokens in text
	table []uint32
}

// newVocabulary indexes a vocabulary in the format of o200kText.
func newVocabulary(packed string) *vocabulary {
	n := int(packed[0])<<16 | int(packed[1])<<8 | int(packed[2])
	lengths, text := packed[3:3+n], packed[3+n:]
	v := &vocabulary{seed: maphash.MakeSeed(), text: text, ends: make([]uint32, n), table: make([]uint32, 1<<tableBits)}
	start := 0
	for rank := range n {
		end := start + int(lengths[rank])
		v.ends[rank] = uint32(end)
		i, mark := v.slot(text[start:end])
		for v.table[i] != 0 {
			i = (i + 1) & rankMask
		}
		v.table[i] = mark | uint32(rank+1)
		start = end
	}
	return v
}

// slot returns the first index in the table for a token, and the upper bits of its entry.
func (v *vocabulary) slot(token string) (i, mark uint32) {
	h := maphash.String(v.seed, token)
	return uint32(h>>32) & rankMask, uint32(h) &^ rankMask
}

// token returns the token of a rank.
func (v *vocabulary) token(rank uint32) string {
	start := uint32(0)
	if rank > 0 {
		start = v.ends[rank-1]
	}
	return v.text[start:v.ends[rank]]
}

// rank returns the rank of a token, noRank if it is not in the vocabulary.
func (v *vocabulary) rank(token string) uint32 {
	for i, mark := v.slot(token); v.table[i] != 0; i = (i + 1) & rankMask {
		if entry := v.table[i]; entry&^rankMask == mark && v.token(entry&rankMask-1) == token {
			return entry&rankMask - 1
		}
	}
	return noRank
}
