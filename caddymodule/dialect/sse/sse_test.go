package sse

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/cut"
)

// readEvents reads a stream in pieces. It returns each event as "name|data".
func readEvents(t testing.TB, pieces ...[]byte) (events []string) {
	t.Helper()
	var r Reader
	for _, p := range pieces {
		own := slices.Clone(p)
		for r.Feed(own); r.Next(); {
			events = append(events, string(r.Name)+"|"+string(r.Data))
		}
		for i := range own { // the reader must not look at a piece again
			own[i] = '#'
		}
	}
	if r.Finish() {
		events = append(events, string(r.Name)+"|"+string(r.Data))
	}
	if r.Err != nil {
		t.Fatalf("reading events: %v", r.Err)
	}
	return events
}

func TestEventReader(t *testing.T) {
	for _, tt := range []struct {
		name, stream string
		want         []string
	}{
		{"LF", "data: a\n\ndata: b\n\n", []string{"|a", "|b"}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"|a", "|b"}},
		{"CR", "data: a\r\rdata: b\r\r", []string{"|a", "|b"}},
		{"mixed ends", "data: a\r\ndata: b\r\rdata: c\n\r\n", []string{"|a\nb", "|c"}},
		{"no space after the colon", "data:a\n\n", []string{"|a"}},
		{"one space only is dropped", "data:  a \n\n", []string{"| a "}},
		{"several data lines", "data: {\ndata: }\n\n", []string{"|{\n}"}},
		{"comments", ": ping\n\n:\n\ndata: a\n: in between\ndata: b\n\n", []string{"|a\nb"}},
		{"event, id, retry, unknown", "id: 7\nevent: error\nretry: 5\nfoo: bar\ndata: x\n\n", []string{"error|x"}},
		{"event name does not last", "event: a\ndata: 1\n\ndata: 2\n\n", []string{"a|1", "|2"}},
		{"event without data is none", "event: error\n\ndata: 1\n\n", []string{"|1"}},
		{"empty data", "data\n\ndata:\n\ndata\ndata\n\n", []string{"|", "|", "|\n"}},
		{"BOM", "\ufeffdata: a\n\n", []string{"|a"}},
		{"a second BOM is text", "\ufeff\ufeffdata: a\n\ndata: \ufeff\n\n", []string{"|\ufeff"}},
		{"no blank line at the end", "data: a\n\ndata: b\n", []string{"|a", "|b"}},
		{"no line end at the end", "data: a\n\ndata: b", []string{"|a", "|b"}},
		{
			"text that looks like a stream", `data: {"t":"data: x\n\nevent: error\n\n[DONE]"}` + "\n\n",
			[]string{`|{"t":"data: x\n\nevent: error\n\n[DONE]"}`},
		},
		{"UTF-8", "data: grüße 日本 🙂\n\n", []string{"|grüße 日本 🙂"}},
		{"nothing", "", nil},
		{"blank lines", "\n\r\n\r", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stream := []byte(tt.stream)
			if got := readEvents(t, stream); !slices.Equal(got, tt.want) {
				t.Errorf("whole: got %q, want %q", got, tt.want)
			}
			if got := readEvents(t, cut.Bytewise(stream)...); !slices.Equal(got, tt.want) {
				t.Errorf("byte by byte: got %q, want %q", got, tt.want)
			}
			for i := range stream {
				if got := readEvents(t, stream[:i], stream[i:]); !slices.Equal(got, tt.want) {
					t.Errorf("cut at %d: got %q, want %q", i, got, tt.want)
				}
			}
		})
	}
}

func TestEventReaderTakesLongLines(t *testing.T) {
	const size = 20 << 20
	stream := []byte("data: " + strings.Repeat("x", size) + "\n\ndata: y\n\n")
	var pieces [][]byte
	for p := range slices.Chunk(stream, 32<<10) {
		pieces = append(pieces, p)
	}
	got := readEvents(t, pieces...)
	if len(got) != 2 || len(got[0]) != size+1 || got[1] != "|y" {
		t.Fatalf("got %d events", len(got))
	}
}

func TestEventReaderBoundsAnEvent(t *testing.T) {
	for name, piece := range map[string]string{
		"one line":   strings.Repeat("x", 1<<20),
		"many lines": "data: " + strings.Repeat("x", 1<<20) + "\n",
	} {
		var r Reader
		fed := 0
		for ; r.Err == nil && fed < 2*MaxEvent; fed += len(piece) {
			for r.Feed([]byte(piece)); r.Next(); {
			}
		}
		if r.Err == nil || fed > MaxEvent+len(piece) {
			t.Errorf("%s: error %v after %d bytes", name, r.Err, fed)
		}
		if r.Next() || r.Finish() {
			t.Errorf("%s: an event after the error", name)
		}
	}
}

func TestEventReaderFreesLargeBuffers(t *testing.T) {
	var r Reader
	big := []byte("data: " + strings.Repeat("x", 1<<20))
	for _, p := range [][]byte{big, []byte("\n"), []byte("data: y\n\n"), []byte("data: z\n\n")} {
		for r.Feed(p); r.Next(); {
		}
	}
	if cap(r.line) > KeepBuffer || cap(r.buf) > KeepBuffer {
		t.Errorf("buffers of %d and %d bytes are kept", cap(r.line), cap(r.buf))
	}
}

func TestEventReaderAllocatesNothing(t *testing.T) {
	event := []byte("data: {\"a\":1}\n\n: ping\n\ndata: {\"b\":2}\n\ndata: cut he")
	rest := []byte("re\n\n")
	var r Reader
	run := func() {
		for _, p := range [][]byte{event, rest} {
			for r.Feed(p); r.Next(); {
			}
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// eventsByTheBook is a simple implementation of the standard, for comparison.
func eventsByTheBook(stream string) (events []string) {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	var data []string
	name := ""
	dispatch := func() {
		if data != nil {
			events = append(events, name+"|"+strings.Join(data, "\n"))
		}
		data, name = nil, ""
	}
	for line := range strings.SplitSeq(stream, "\n") {
		if line == "" {
			dispatch()
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			name = value
		}
	}
	dispatch()
	return events
}

func FuzzEventReader(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\nevent: error\ndata: b\ndata\n\n"), uint64(1))
	f.Add([]byte("\ufeffdata: a\r\rdata:b\n: c\n\n"), uint64(2))
	f.Add([]byte("event\ndata\n\rdata:\n\r\n\r"), uint64(3))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		want := eventsByTheBook(string(stream))
		if got := readEvents(t, stream); !slices.Equal(got, want) {
			t.Fatalf("whole: got %q, want %q", got, want)
		}
		if got := readEvents(t, cut.Anywhere(bytes.Clone(stream), seed)...); !slices.Equal(got, want) {
			t.Fatalf("cut: got %q, want %q", got, want)
		}
	})
}
