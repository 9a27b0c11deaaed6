package dialect

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sameDigest compares a digest with what is wanted of it.
func sameDigest(got, want string) bool {
	if start, ok := strings.CutSuffix(want, "…"); ok {
		return strings.HasPrefix(got, start)
	}
	return got == want
}

// stream returns a stream as the case's client wants it.
func (c *answerCase) stream(d Dialect) *answerStream {
	r := testCall()
	if c.change != nil {
		c.change(r)
	}
	return newTestStream(d, r)
}

func TestStreamCases(t *testing.T) {
	for _, c := range answerCases {
		t.Run(c.name, func(t *testing.T) {
			messages := translate(c.stream(Messages), c.upstream, nil)
			if got := messagesDigest(t, messages); !sameDigest(got, c.messages) {
				t.Errorf("messages\n got %s\nwant %s", got, c.messages)
			}
			responses := translate(c.stream(Responses), c.upstream, nil)
			if got := responsesDigest(t, responses); !sameDigest(got, c.responses) {
				t.Errorf("responses\n got %s\nwant %s", got, c.responses)
			}
			golden(t, c.name, "upstream:\n"+c.upstream+"\nmessages:\n"+messages+"\nresponses:\n"+responses)
		})
	}
}

// golden compares text with the test's golden file.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", "answers", strings.NewReplacer(" ", "_", ",", "", "'", "").Replace(name)+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("not as in %s (-update writes it anew):\n%s", path, text)
	}
}

// TestStreamCuts checks that the result does not depend on how the upstream's bytes are cut.
func TestStreamCuts(t *testing.T) {
	for _, c := range answerCases {
		for _, d := range []Dialect{Messages, Responses} {
			want := translate(c.stream(d), c.upstream, nil)
			for seed := range uint64(4) {
				random := rand.New(rand.NewPCG(seed, 1))
				cut := func() int { return 1 + random.IntN(1+int(seed)*20) }
				if got := translate(c.stream(d), c.upstream, cut); got != want {
					t.Fatalf("%s, %s, cut by seed %d:\n%s\nwant\n%s", c.name, d, seed, got, want)
				}
			}
		}
	}
}

// TestStreamEnds checks that a stream that breaks off before its end is known never looks complete, and
// follows the grammar. It cuts around the end of each line, and inside lines.
func TestStreamEnds(t *testing.T) {
	for _, c := range answerCases {
		end := strings.Index(c.upstream, `"finish_reason":"`)
		if end < 0 || strings.Contains(c.upstream[:end], "[DONE]") {
			continue
		}
		at := 0 // where a line begins
		for line := range strings.Lines(c.upstream[:end]) {
			for _, cut := range slices.Compact([]int{at, at + len(line)/2, at + len(line) - 1}) {
				upstream := c.upstream[:cut]
				if got := messagesDigest(t, translate(c.stream(Messages), upstream, nil)); !strings.Contains(got, "!") {
					t.Fatalf("%s, cut at %d: %s", c.name, cut, got)
				}
				if got := responsesDigest(t, translate(c.stream(Responses), upstream, nil)); !strings.Contains(got, "!") {
					t.Fatalf("%s, cut at %d: %s", c.name, cut, got)
				}
			}
			at += len(line)
		}
	}
}

func Example_stream() {
	s := newTestStream(Messages, testCall())
	s.Ping()
	fmt.Printf("%s", s.Feed([]byte(contentChunk("Hi"))))
	// Output:
	// event: content_block_start
	// data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}
	//
	// event: content_block_delta
	// data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}
}
