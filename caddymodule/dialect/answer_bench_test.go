package dialect

import (
	"fmt"
	"strings"
	"testing"
)

// benchmarkEvents measures the time and the allocations of one event.
func benchmarkEvents(b *testing.B, d Dialect, first, event string) {
	s := newTestStream(d, testCall())
	s.Ping()
	s.Feed([]byte(first))
	p := []byte(event)
	s.Feed(p)
	b.ReportAllocs()
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if len(s.Feed(p)) == 0 {
			b.Fatal("no event")
		}
	}
}

func BenchmarkAnswerEvents(b *testing.B) {
	for _, d := range []Dialect{Messages, Responses} {
		b.Run(fmt.Sprintf("%s/text", d), func(b *testing.B) { benchmarkEvents(b, d, "", contentChunk(" tokens")) })
		b.Run(fmt.Sprintf("%s/text_escaped", d), func(b *testing.B) { benchmarkEvents(b, d, "", contentChunk("\n\"é\" 😀")) })
		b.Run(fmt.Sprintf("%s/reason", d), func(b *testing.B) { benchmarkEvents(b, d, "", reasonChunk(" tokens")) })
		b.Run(fmt.Sprintf("%s/arguments", d), func(b *testing.B) {
			benchmarkEvents(b, d, toolChunk(call(0, "c1", "a", `{"x":["`)), toolChunk(more(0, `a","b`)))
		})
	}
}

// BenchmarkAnswer measures a whole stream of 500 pieces of text.
func BenchmarkAnswer(b *testing.B) {
	upstream := []byte(strings.Repeat(contentChunk(" tokens"), 500) + finishChunk("stop") + usageChunk(10, 0, 500) +
		upstreamDone)
	for _, d := range []Dialect{Messages, Responses} {
		b.Run(string(d), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := newTestStream(d, testCall())
				s.Ping()
				s.Feed(upstream)
				if !s.Done() {
					b.Fatal("not done")
				}
			}
		})
	}
}

// TestEventAllocations bounds the allocations of an event: one string for its text.
func TestEventAllocations(t *testing.T) {
	for _, d := range []Dialect{Messages, Responses} {
		for name, event := range map[string]string{"text": contentChunk(" tokens\n"), "reason": reasonChunk(" tokens")} {
			s := newTestStream(d, testCall())
			s.Ping()
			p := []byte(event)
			for range 100 {
				s.Feed(p)
			}
			if n := testing.AllocsPerRun(2000, func() { s.Feed(p) }); n > 3 {
				t.Errorf("%s, %s: %v allocations per event", d, name, n)
			}
		}
	}
}

// TestMessagesState checks that a messages stream keeps nothing that it has sent but the arguments of an open call.
func TestMessagesState(t *testing.T) {
	s := newTestStream(Messages, testCall())
	s.Ping()
	kept := func() (n int64) {
		m := s.encoder.(*messagesEncoder)
		for i := range s.slots.slots {
			n += int64(cap(s.slots.slots[i].pending))
		}
		return n + int64(cap(m.out)+cap(m.refusal)+cap(s.blocks.call.pending)) + s.reader.Buffered()
	}
	feed := func(p string) {
		for range 1000 {
			s.Feed([]byte(p))
		}
	}
	feed(contentChunk(strings.Repeat("x", 1000)))
	s.Feed([]byte(toolChunk(call(0, "c1", "a", `{"x":"`))))
	feed(toolChunk(more(0, strings.Repeat("x", 1000))))
	if n := kept(); n > 2<<20 || s.Buffered() < 1<<20 {
		t.Errorf("%d bytes kept, %d reported, of arguments of 1 MB", n, s.Buffered())
	}
	s.Feed([]byte(toolChunk(more(0, `"}`)) + contentChunk("So.")))
	if n := kept(); n > 16<<10 {
		t.Errorf("%d bytes kept of a stream of 2 MB", n)
	}
}
