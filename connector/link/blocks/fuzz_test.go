package blocks

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// FuzzDecode: a connector reads whatever a gateway sends, within its bounds.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(piece([]uint64{3<<1 | 1, 1, 1 << 1, 1 << 1}, "abc")), uint32(9))
	for _, text := range []string{prose(1, 2_000), noise(2_000)} {
		encoded, _ := io.ReadAll(NewEncoder(body(text), 2_000, Options{Known: NewKnown(NewQuota(100), 1<<20)}))
		f.Add(encoded, uint32(2_000))
	}
	f.Fuzz(func(t *testing.T, encoded []byte, length uint32) {
		store := NewStore(10_000)
		n, err := io.Copy(io.Discard, NewDecoder(io.NopCloser(bytes.NewReader(encoded)), int64(length), store))
		if n > int64(length) || err == nil && n != int64(length) {
			t.Errorf("%d bytes of %d: %v", n, length, err)
		}
		if store.size > 10_000 || len(store.blocks) != store.recent.Len() {
			t.Errorf("the store has %d bytes", store.size)
		}
	})
}

// FuzzRoundTrip: any two bodies arrive, however they are read.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte(prose(1, 1000)), uint16(49), uint16(9000))
	f.Fuzz(func(t *testing.T, data []byte, repeat, at uint16) {
		text := strings.Repeat(string(data), 1+int(repeat)%50)
		u := newTunnel(100_000, 100_000)
		u.send(t, "key", text)
		at = uint16(min(int(at), len(text)))
		u.send(t, "key", text[:at]+"x"+text[at:])
	})
}

// FuzzCut: the blocks are the body, within the bounds, however much of it is at hand.
func FuzzCut(f *testing.F) {
	f.Add([]byte(prose(1, 1000)), uint16(100), uint16(49))
	f.Fuzz(func(t *testing.T, data []byte, step, repeat uint16) {
		for rest, have := bytes.Repeat(data, 1+int(repeat)%50), 0; len(rest) > 0; {
			have = min(max(have, 0)+int(step)+1, len(rest))
			n := cut(rest[:have], have == len(rest))
			if n == 0 {
				if have >= maxBlock {
					t.Fatal("no end")
				}
				continue
			}
			if want := cut(rest, true); n != want || n > maxBlock || n < minBlock && n < len(rest) {
				t.Fatalf("a block of %d bytes, of %d", n, want)
			}
			rest, have = rest[n:], have-n
		}
	})
}
