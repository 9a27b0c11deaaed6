package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// tokenEvents returns the events of n tokens, as llama.cpp sends them.
func tokenEvents(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":" token%d"}}],`+
			`"created":1790000000,`+
			`"id":"chatcmpl-abcdefghijklmnopqrstuvwxyz012345","model":"model.gguf","object":"chat.completion.chunk"}`+"\n\n", i)
	}
	return b.Bytes()
}

// encodeEvents returns p as chunks of records, one for each write of the given size.
func encodeEvents(p []byte, write int) []byte {
	w := &response{events: newPieces(), length: -1}
	for len(p) > 0 {
		n := min(write, len(p))
		w.appendEvents(p[:n])
		w.out = append(w.out, "\r\n"...)
		p = p[n:]
	}
	return append(w.out, "0\r\n\r\n"...)
}

// decodeEvents reads a body of chunks of records through reads of up to n bytes.
func decodeEvents(stream io.Reader, n int) ([]byte, error) {
	b := &reader{stream: stream, body: body{chunked: true, events: newPieces()}}
	defer b.release()
	var out []byte
	p := make([]byte, n)
	for {
		n, err := b.readBody(p)
		out = append(out, p[:n]...)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

func TestEventsArriveUnchanged(t *testing.T) {
	streams := map[string][]byte{
		"tokens":      tokenEvents(500),
		"CRLF":        bytes.ReplaceAll(tokenEvents(100), []byte("\n"), []byte("\r\n")),
		"no newlines": bytes.Repeat([]byte("x"), 3*maxPiece+1),
		"newlines":    bytes.Repeat([]byte("\n"), 5000),
		"short":       []byte("data: a\n\ndata: b\n\n: ping\n\n"),
		"one byte":    []byte("x"),
		"long events": bytes.Repeat([]byte("data: "+strings.Repeat("long ", maxPiece)+"\n\n"), 3),
		"repeats":     bytes.Repeat([]byte("data: the same event, again and again\n\n"), 1000),
	}
	for name, stream := range streams {
		for _, write := range []int{1, 7, 100, 4096, largeChunk} {
			coded := encodeEvents(stream, write)
			for read, from := range map[int]io.Reader{
				1:        bytes.NewReader(coded),
				100:      iotest.OneByteReader(bytes.NewReader(coded)),
				32 << 10: iotest.DataErrReader(bytes.NewReader(coded)),
			} {
				got, err := decodeEvents(from, read)
				if err != nil || !bytes.Equal(got, stream) {
					t.Fatalf("%s, writes of %d, reads of %d: got %d bytes of %d, error %v", name, write, read, len(got),
						len(stream), err)
				}
			}
		}
	}
}

// TestEventsAreShort bounds the bytes of a stream of tokens in the tunnel.
func TestEventsAreShort(t *testing.T) {
	stream := tokenEvents(1000)
	if coded := len(encodeEvents(stream, largeChunk)); coded > len(stream)/12 {
		t.Errorf("%d bytes of events took %d", len(stream), coded)
	}
	single := &response{events: newPieces(), length: -1}
	for event := range bytes.SplitAfterSeq(stream, []byte("\n\n")) {
		single.appendEvents(event)
	}
	if coded := len(single.out); coded > len(stream)/8 {
		t.Errorf("%d bytes of single events took %d", len(stream), coded)
	}
	random := make([]byte, largeChunk)
	for i := range random {
		random[i] = byte(i * i >> 3)
	}
	if coded := len(encodeEvents(random, largeChunk)); coded > len(random)+len(random)/8 {
		t.Errorf("%d bytes took %d", len(random), coded)
	}
}

func TestInvalidEvents(t *testing.T) {
	for name, stream := range map[string]string{
		"a prefix of nothing":         "3\r\n\x01\x00\x00\r\n0\r\n\r\n",
		"an empty piece":              "3\r\n\x00\x00\x00\r\n0\r\n\r\n",
		"prefix and suffix overlap":   "a\r\n\x00\x00\x02ab\x02\x01\x01xy\r\n0\r\n\r\n",
		"a piece that is too long":    "5\r\n\x00\x00\x81\x10x\r\n0\r\n\r\n",
		"a length that is too long":   "b\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00\r\n0\r\n\r\n",
		"a record over two chunks":    "4\r\n\x00\x00\x02a\r\n1\r\nb\r\n0\r\n\r\n",
		"a chunk without a record":    "1\r\n\x00\r\n0\r\n\r\n",
		"a chunk with an end of lead": "2\r\n\x00\x80\r\n0\r\n\r\n",
	} {
		if got, err := decodeEvents(strings.NewReader(stream), 100); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %q, error %v", name, got, err)
		}
	}
	for _, cut := range []string{"5\r\n\x00\x00\x02a", "5\r\n\x00\x00\x02ab", "5\r\n\x00\x00\x02ab\r\n", ""} {
		if _, err := decodeEvents(strings.NewReader(cut), 100); err != io.ErrUnexpectedEOF {
			t.Errorf("%q: error %v", cut, err)
		}
	}
}

// TestRecordsAreNotBombs checks that a stream is not much longer than its records, and that an
// encoder keeps to that.
func TestRecordsAreNotBombs(t *testing.T) {
	const pieces = 1000
	bomb := append([]byte{0, 0, 0x80, 0x10}, bytes.Repeat([]byte("\n"), maxPiece)...)
	for range pieces { // of what the previous one was
		bomb = append(bomb, 0x80, 0x10, 0, 0)
	}
	got, err := decodeEvents(strings.NewReader(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(bomb), bomb)), 32<<10)
	if most := maxStart + maxGain*len(bomb); !errors.Is(err, ErrMalformed) || len(got) > most {
		t.Errorf("%d bytes of records: got %d bytes of a stream, error %v", len(bomb), len(got), err)
	}

	same := bytes.Repeat([]byte("data: "+strings.Repeat("x", maxPiece-8)+"\n\n"), pieces)
	coded := newPieces().appendRecords(nil, same)
	if len(same) > maxStart+maxGain*len(coded) || len(coded) > len(same)/maxGain*2 {
		t.Errorf("%d bytes of events took %d", len(same), len(coded))
	}
}

func FuzzDecodeEvents(f *testing.F) {
	f.Add(encodeEvents(tokenEvents(3), 100), 10)
	f.Add([]byte("5\r\n\x00\x00\x02ab\r\n3\r\n\x01\x01\x00\r\n0\r\n\r\n"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, read int) {
		read = min(max(read, 1), 4096)
		whole, wholeErr := decodeEvents(bytes.NewReader(stream), read)
		split, splitErr := decodeEvents(iotest.OneByteReader(bytes.NewReader(stream)), 3)
		if !bytes.Equal(whole, split) || (wholeErr == nil) != (splitErr == nil) {
			t.Errorf("in one piece: %q, %v; in single bytes: %q, %v", whole, wholeErr, split, splitErr)
		}
	})
}

func FuzzEncodeEvents(f *testing.F) {
	f.Add(tokenEvents(5), 300)
	f.Fuzz(func(t *testing.T, stream []byte, write int) {
		got, err := decodeEvents(bytes.NewReader(encodeEvents(stream, max(write, 1))), 512)
		if err != nil || !bytes.Equal(got, stream) {
			t.Errorf("%q in writes of %d: got %q, %v", stream, write, got, err)
		}
	})
}

// BenchmarkEvents measures an event in a stream that is read and written in large pieces.
func BenchmarkEvents(b *testing.B) {
	stream := tokenEvents(150)
	encoder, decoder := newPieces(), newPieces()
	var coded []byte
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			coded = encoder.appendRecords(coded[:0], stream)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*150), "ns/event")
	})
	b.Run("decode", func(b *testing.B) {
		coded = newPieces().appendRecords(coded[:0], stream)
		p := make([]byte, maxPiece)
		for b.Loop() {
			decoder.n, decoder.left = 0, maxStart
			for rest := coded; len(rest) > 0; {
				n, err := decoder.decode(rest)
				if err != nil || decoder.take(p) == 0 {
					b.Fatal(err)
				}
				rest = rest[n:]
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*150), "ns/event")
	})
}
