package dialect

import (
	"strings"
	"testing"
)

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
