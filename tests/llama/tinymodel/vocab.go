package tinymodel

import (
	"fmt"
	"strings"
)

// Token kinds of a GGUF vocabulary.
const (
	kindNormal  = 1
	kindControl = 3
	kindUser    = 4 // matched in text before the tokenizer's merges
)

// maxWord bounds a piece that ends at a word boundary, maxPiece any other.
const (
	maxWord  = 40
	maxPiece = 24
)

// A vocab is the token table and the merges of a byte-level BPE tokenizer.
type vocab struct {
	text  []string // raw bytes of each token
	kind  []int32
	index map[string]int
	merge []string // "left right", in byte runes
}

// add appends a token and returns its id. A duplicate token is an error in the scripts.
func (v *vocab) add(text string, kind int32) int {
	if _, dup := v.index[text]; dup {
		panic(fmt.Sprintf("token %q is in the vocabulary twice", text))
	}
	v.index[text] = len(v.text)
	v.text = append(v.text, text)
	v.kind = append(v.kind, kind)
	return len(v.text) - 1
}

// truncate drops the tokens from number n on.
func (v *vocab) truncate(n int) {
	for _, t := range v.text[n:] {
		delete(v.index, t)
	}
	v.text, v.kind = v.text[:n], v.kind[:n]
}

// encode writes bytes in the runes of GPT-2's byte-level BPE: printable bytes
// stand for themselves, the others for runes from U+0100 on, in order.
func encode(s string) string {
	var table [256]rune
	spare := rune(256)
	for b := range table {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			table[b] = rune(b)
		} else {
			table[b] = spare
			spare++
		}
	}
	var sb strings.Builder
	for i := range len(s) {
		sb.WriteRune(table[s[i]])
	}
	return sb.String()
}

// A word is a word of the corpus: the parts that it is merged to so far, and the number of its occurrences.
type word struct {
	parts []string
	count int
}

// words counts the letter runs of text, each with one leading space if it has one.
func words(text string) []word {
	letter := func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
	counts := map[string]int{}
	for i := 0; i < len(text); {
		j := i
		if text[j] == ' ' && j+1 < len(text) && letter(text[j+1]) {
			j++
		}
		for j < len(text) && letter(text[j]) {
			j++
		}
		if j > i+1 {
			counts[text[i:j]]++
		}
		i = max(j, i+1)
	}
	var list []word
	for w, n := range counts {
		list = append(list, word{strings.Split(w, ""), n})
	}
	return list
}

// train learns up to n merges from text. The pair's text decides between equal counts, so that the file is
// deterministic.
func (v *vocab) train(text string, n int) {
	list := words(text)
	for len(v.merge) < n {
		best, ok := commonPair(list)
		if !ok {
			return
		}
		v.merge = append(v.merge, encode(best[0])+" "+encode(best[1]))
		if _, known := v.index[best[0]+best[1]]; !known {
			v.add(best[0]+best[1], kindNormal)
		}
		for k := range list {
			list[k].parts = mergePair(list[k].parts, best)
		}
	}
}

// commonPair returns the neighbors that occur most often, at least twice.
func commonPair(list []word) (best [2]string, ok bool) {
	pairs := map[[2]string]int{}
	for _, w := range list {
		for i := range len(w.parts) - 1 {
			pairs[[2]string{w.parts[i], w.parts[i+1]}] += w.count
		}
	}
	count := 1
	for p, c := range pairs {
		if c > count || c == count && c > 1 && p[0]+"\x00"+p[1] < best[0]+"\x00"+best[1] {
			best, count = p, c
		}
	}
	return best, count > 1
}

func mergePair(parts []string, pair [2]string) []string {
	var out []string
	for i := 0; i < len(parts); i++ {
		if i+1 < len(parts) && parts[i] == pair[0] && parts[i+1] == pair[1] {
			out = append(out, pair[0]+pair[1])
			i++
			continue
		}
		out = append(out, parts[i])
	}
	return out
}

// A cutter divides scripts into tokens that no other script uses.
type cutter struct {
	*vocab
	used map[int]bool
}

// specials are the tokens that model servers look for in the output.
func specials() []string {
	return []string{"<tool_call>", "</tool_call>", "<think>", "</think>"}
}

// cut returns the tokens of s. If a short rest has no unused token, it tries other lengths. ok is false if
// there is no way.
func (c *cutter) cut(s string) (ids []int, ok bool) {
	if s == "" {
		return nil, true
	}
	limit := len(s)
	for _, sp := range specials() {
		if c.used[c.index[sp]] {
			continue // used by another script: try other tokens
		}
		if i := strings.Index(s, sp); i == 0 {
			return c.try(s, len(sp))
		} else if i > 0 {
			limit = min(limit, i)
		}
	}
	for _, n := range pieceSizes(s, limit) {
		if ids, ok := c.try(s, n); ok {
			return ids, true
		}
	}
	return nil, false
}

// pieceSizes returns the lengths to try, best first: ends of words, then any length, which may split runes,
// then the rest.
func pieceSizes(s string, limit int) []int {
	var sizes []int
	for n := 2; n < min(limit, maxWord); n++ {
		if s[n] == ' ' || s[n] == '\n' {
			sizes = append(sizes, n)
		}
	}
	for n := 3; n <= min(limit, maxPiece); n++ {
		sizes = append(sizes, n)
	}
	for _, n := range []int{limit, 2, 1} {
		if n <= limit {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// try makes the first n bytes of s one token and cuts the rest; it undoes
// everything if the rest cannot be cut.
func (c *cutter) try(s string, n int) ([]int, bool) {
	id, known := c.index[s[:n]]
	if known && (c.used[id] || c.kind[id] != kindUser) { // tokens of the tokenizer are not used
		return nil, false
	}
	mark := len(c.text)
	if !known {
		id = c.add(s[:n], kindNormal)
	}
	c.used[id] = true
	rest, ok := c.cut(s[n:])
	if !ok {
		c.used[id] = false
		c.truncate(mark)
		return nil, false
	}
	return append([]int{id}, rest...), true
}
