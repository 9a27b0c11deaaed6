package tokens

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
	"github.com/tiktoken-go/tokenizer/codec"
)

var update = flag.Bool("update", false, "write o200k.bin")

// reference is another implementation of the tokenizer.
var reference = sync.OnceValue(codec.NewO200kBase)

// packedReference is the reference's vocabulary in the format of o200kText.
func packedReference() []byte {
	var lengths, text []byte
	for rank := uint(0); ; rank++ {
		token, err := reference().Decode([]uint{rank})
		if err != nil {
			n := len(lengths)
			return append(append([]byte{byte(n >> 16), byte(n >> 8), byte(n)}, lengths...), text...)
		}
		lengths, text = append(lengths, byte(len(token))), append(text, token...)
	}
}

func TestVocabulary(t *testing.T) {
	want := packedReference()
	if *update {
		if err := os.WriteFile("o200k.bin", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal([]byte(o200kText), want) {
		t.Fatal("o200k.bin differs from the reference; -update writes it")
	}
	v := o200k()
	for rank := range uint32(len(v.ends)) {
		if got := v.rank(v.token(rank)); got != rank {
			t.Fatalf("%q has rank %d, want %d", v.token(rank), got, rank)
		}
	}
	if n := (&merger{vocabulary: v}).count("\n  \n"); n != 1 {
		t.Errorf("white space that is a token has %d tokens", n)
	}
	if v.rank("no such token") != noRank || v.rank("") != noRank {
		t.Error("a text that is not a token has a rank")
	}
}

// pattern is o200k's regular expression, in a group: the reference's own translation of it
// to Go matches some white space and DEL differently.
var pattern = regexp2.MustCompile(`(`+
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?`+
	`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?`+
	`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)`, regexp2.None)

// checkTokens compares the pieces of a text with those of the regular expression, and the
// tokens of each piece with those of the reference.
func checkTokens(t *testing.T, text string) {
	t.Helper()
	m := merger{vocabulary: o200k()}
	match, err := pattern.FindStringMatch(text)
	for rest := text; len(rest) > 0; match, err = pattern.FindNextMatch(match) {
		if err != nil || match == nil {
			t.Fatalf("%q: no match at %q: %v", text, rest, err)
		}
		piece := rest[:nextPiece(rest)]
		if piece != match.String() {
			t.Fatalf("%q: piece %q, want %q", text, piece, match.String())
		}
		rest = rest[len(piece):]
		if strings.TrimSpace(piece) == "" || strings.Contains(piece, "\x7f") {
			continue // see pattern
		}
		if got, want := m.count(piece), count(t, piece); got != want {
			t.Fatalf("%q: %d tokens, want %d", piece, got, want)
		}
	}
}

// count returns the number of tokens by the reference.
func count(t *testing.T, text string) int {
	t.Helper()
	n, err := reference().Count(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTokensAreThoseOfTheReference(t *testing.T) {
	words := []string{
		"hello", "World", "HTTPServer", "iPhone's", "WE'LL", "'ſ", "don't", " ", "  ", "\n", "\r\n", "\t", "\u00a0",
		"\u2003", "\u0085",
		"123", "45678", "½", "x²", "!", "==>", "/", "...", "//\n", "é", "e\u0301", "\u0301", "ǅ", "ʰ", "你好", "世界",
		"हिन्दी", "русский",
		"Über", "🙂", "👩‍👩‍👧", "\x00", "func (t *T)", "<|endoftext|>", strings.Repeat("a", 200), strings.Repeat("xY", 100),
		"'", "_", "\v",
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var text strings.Builder
		for range 1 + rnd.IntN(12) {
			text.WriteString(words[rnd.IntN(len(words))])
		}
		checkTokens(t, text.String())
	}
}

func FuzzTokens(f *testing.F) {
	f.Add("Hello World's \n\n 12345 你好 e\u0301ǅa")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) <= countPiece && utf8.ValidString(text) {
			checkTokens(t, text)
		}
	})
}
