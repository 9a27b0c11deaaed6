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

// answerCase is a file in testdata/answers: a model server's stream, and what a client of each dialect reads. Its
// first line may name a property of the request.
type answerCase struct {
	name, request, upstream string
}

// answerCases reads all cases.
func answerCases(t testing.TB) (cases []answerCase) {
	t.Helper()
	paths, err := filepath.Glob("testdata/answers/*.golden")
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, _ := strings.Cut(string(text), "upstream:\n")
		upstream, _, ok := strings.Cut(rest, "\nchat:\n")
		if !ok {
			t.Fatalf("%s has no stream of a model server", path)
		}
		request := strings.TrimSpace(strings.TrimPrefix(head, "request:"))
		cases = append(cases, answerCase{strings.TrimSuffix(filepath.Base(path), ".golden"), request, upstream})
	}
	return cases
}

// requestProperties are the properties of requests that cases name.
var requestProperties = map[string]func(*reply){
	"":                        func(*reply) {},
	"tools":                   withTools,
	"omit_thinking":           func(r *reply) { r.omitThinking = true },
	"encrypted":               func(r *reply) { r.encrypted = true },
	"logprobs":                wantProbs,
	"think_tags":              wantTags,
	"logprobs_and_think_tags": func(r *reply) { wantProbs(r); wantTags(r) },
}

// withTools is a request with tools that have other names upstream.
func withTools(r *reply) {
	r.names = map[string]ToolName{
		"apply_patch":       {Kind: ToolCustom, Name: "apply_patch"},
		"mcp__docs__search": {Name: "search", Namespace: "mcp__docs__"},
		"functions__exec":   {Kind: ToolCustom, Name: "exec", Namespace: "functions"},
		"local_shell":       {Kind: ToolLocalShell, Name: "local_shell"},
		"shell":             {Kind: ToolShell, Name: "shell"},
		"patch":             {Kind: ToolApplyPatch, Name: "apply_patch"},
	}
}

// stream returns a stream as the case's client wants it.
func (c *answerCase) stream(d Dialect) Stream {
	if d == Chat {
		return NewChatStream(ChatStreamOptions{Model: "public", Choices: 1})
	}
	return newTestStream(d, testCall(requestProperties[c.request]))
}

// TestStreamCases compares the streams of all cases with their files, byte for byte. They follow the grammar of their
// dialect.
func TestStreamCases(t *testing.T) {
	for _, c := range answerCases(t) {
		t.Run(c.name, func(t *testing.T) {
			text := "upstream:\n" + c.upstream
			if c.request != "" {
				text = "request: " + c.request + "\n" + text
			}
			for _, d := range []Dialect{Chat, Messages, Responses} {
				s := c.stream(d)
				out := translate(s, c.upstream, nil)
				if chat, ok := s.(*ChatStream); ok {
					checkClientStream(t, out, chat, false)
				} else if err := checkStream(d, out); err != nil {
					t.Errorf("%v in\n%s", err, out)
				}
				text += "\n" + string(d) + ":\n" + out
			}
			golden(t, filepath.Join("answers", c.name), text)
		})
	}
}

// golden compares text with a golden file.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
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
	for _, c := range answerCases(t) {
		for _, d := range []Dialect{Chat, Messages, Responses} {
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
	for _, c := range answerCases(t) {
		end := strings.Index(c.upstream, `"finish_reason":"`)
		if end < 0 || strings.Contains(c.upstream[:end], "[DONE]") {
			continue
		}
		at := 0 // where a line begins
		for line := range strings.Lines(c.upstream[:end]) {
			for _, cut := range slices.Compact([]int{at, at + len(line)/2, at + len(line) - 1}) {
				for _, d := range []Dialect{Chat, Messages, Responses} {
					s := c.stream(d)
					out := translate(s, c.upstream[:cut], nil)
					if s.Err() == nil || d != Chat && checkStream(d, out) != nil {
						t.Fatalf("%s, %s, cut at %d: %v\n%s", c.name, d, cut, s.Err(), out)
					}
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
