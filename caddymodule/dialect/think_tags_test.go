package dialect

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// thinkCases are texts of an answer, and their thinking and text.
var thinkCases = []struct{ name, text, messages string }{
	{
		"thinking and text", "<think>\nhm \"é\"\n\nyes\n</think>\n\nHi\n there ",
		"thinking:hm \"é\"\n\nyes text:Hi\n there  | end_turn",
	},
	{"white space in front", "\n <think>hm</think>Hi", "thinking:hm text:Hi | end_turn"},
	{"no thinking", "Hi", "text:Hi | end_turn"},
	{"white space and text", " \nHi", "text: \nHi | end_turn"},
	{"white space alone", "\n\n", "text:\n\n | end_turn"},
	{"empty thinking", "<think>\n\n</think>\n\nHi", "text:Hi | end_turn"},
	{"tags further behind are text", "Use <think>a</think> for that", "text:Use <think>a</think> for that | end_turn"},
	{
		"tags behind the thinking are text", "<think>hm</think>\n<think>b</think>",
		"thinking:hm text:<think>b</think> | end_turn",
	},
	{"tags in the thinking", "<think>a<think>b</b></thin></think>Hi", "thinking:a<think>b</b></thin> text:Hi | end_turn"},
	{"no tag after all", "<thinking>hm", "text:<thinking>hm | end_turn"},
	{"half a tag at the end", " <thi", "text: <thi | end_turn"},
	{"half a tag at the end of the thinking", "<think>hm </thi", "thinking:hm </thi | end_turn"},
	{"a tag in other letters", "<THINK>hm</THINK>", "text:<THINK>hm</THINK> | end_turn"},
	{"thinking alone", "<think>hm</think>", "thinking:hm | end_turn"},
	{"nothing but tags", "<think></think>", "| end_turn"},
}

func TestThinkTags(t *testing.T) {
	for _, c := range thinkCases {
		t.Run(c.name, func(t *testing.T) {
			responses := strings.NewReplacer("thinking:", "reasoning:", "text:", "message:", "end_turn",
				"completed").Replace(c.messages)
			if strings.HasPrefix(responses, "|") {
				responses = "message: " + responses
			}
			messages, got := answerDigests(t, wholeBody(`"content":`+quoted(c.text), `"stop"`, ""), wantTags)
			if messages != c.messages || got != responses {
				t.Errorf("whole\n got %q %q\nwant %q %q", messages, got, c.messages, responses)
			}
			for seed := range uint64(10) {
				r := rand.New(rand.NewPCG(seed, 3))
				var stream strings.Builder
				for rest := c.text; rest != ""; {
					n := min(1+r.IntN(5), len(rest))
					for n < len(rest) && rest[n]&0xC0 == 0x80 {
						n++
					}
					stream.WriteString(contentChunk(rest[:n]))
					rest = rest[n:]
				}
				stream.WriteString(finishChunk("stop") + upstreamDone)
				cut := func() int { return 1 + r.IntN(100) }
				if got := messagesDigest(t,
					translate(newTestStream(Messages, testCall(wantTags)), stream.String(),
						cut)); got != strings.TrimSpace(c.messages) {
					t.Fatalf("messages, seed %d\n got %q\nwant %q", seed, got, c.messages)
				}
				if got := responsesDigest(t,
					translate(newTestStream(Responses, testCall(wantTags)), stream.String(), cut)); got != responses {
					t.Fatalf("responses, seed %d\n got %q\nwant %q", seed, got, responses)
				}
			}
		})
	}
}

// Nothing is buffered longer than necessary: thinking is reported with the piece that has it.
func TestThinkTagsDoNotWait(t *testing.T) {
	s := newTestStream(Messages, testCall(wantTags))
	for _, c := range []struct{ chunk, want string }{
		{"<think>", ""},
		{"\nhm", `"thinking":"hm"`},
		{", so ", `"thinking":", so"`},
		{"what <", `"thinking":" what"`},
		{"5 ", `"thinking":" <5"`},
		{"</think", ""},
		{">\n\n", ""},
		{"Hi", `"text":"Hi"`},
		{" <think>", `"text":" <think>"`},
	} {
		out := string(s.Feed([]byte(contentChunk(c.chunk))))
		if (c.want == "") == strings.Contains(out, "delta") || !strings.Contains(out, c.want) {
			t.Errorf("for %q came %q, want %q", c.chunk, out, c.want)
		}
	}
}

// The buffer for white space is bounded.
func TestThinkTagsAreBounded(t *testing.T) {
	for _, start := range []string{"", "<think>hm", "<think>hm</think>"} {
		n := normaliser{
			parts:     &serialiser{encoder: testCall(func(r *reply) { r.dialect = Messages }).encoder(true)},
			thinkTags: true,
		}
		n.feed([]byte(contentChunk(start)))
		for range 100 {
			n.feed([]byte(contentChunk(strings.Repeat("\n", 1000))))
			if held := len(n.think.pending); held > 2*maxPendingSpace {
				t.Fatalf("%d bytes are held behind %q", held, start)
			}
		}
	}
}
