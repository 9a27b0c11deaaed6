package blocks

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

// prose returns n bytes of words, which compress like text.
func prose(seed uint64, n int) string {
	text := many()
	at := int(seed * 0x9e3779b97f4a7c15 % uint64(len(text)-n))
	return text[at : at+n]
}

// many is a text of 8 MiB.
var many = sync.OnceValue(func() string {
	random := rand.New(rand.NewPCG(1, 1))
	words := make([]string, 2000)
	for i := range words {
		words[i] = base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, random.Uint64()))[:2+
			random.IntN(8)]
	}
	var b strings.Builder
	for b.Len() < 8<<20 {
		b.WriteString(words[int(random.ExpFloat64()*200)%len(words)])
		b.WriteByte(' ')
	}
	return b.String()
})

// noise returns n bytes that cannot be compressed.
func noise(n int) string {
	random := rand.New(rand.NewPCG(7, 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return string(b)
}

func body(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }

// tunnel is both ends.
type tunnel struct {
	held  *Known
	store *Store
	sent  int // bytes of the last body
}

func newTunnel(gateway, connector int64) *tunnel {
	return &tunnel{held: NewKnown(NewQuota(1<<20), gateway), store: NewStore(connector)}
}

// attempt sends a body once, as the owner.
func (u *tunnel) attempt(owner, text string, whole bool) (string, error) {
	e := NewEncoder(body(text), int64(len(text)), Options{Known: u.held, Owner: owner, Whole: whole})
	encoded, err := io.ReadAll(e)
	if err != nil {
		return "", err
	}
	u.sent = len(encoded)
	got, err := io.ReadAll(NewDecoder(body(string(encoded)), int64(len(text)), u.store))
	switch {
	case err == nil:
		e.Received()
	case errors.Is(err, ErrUnknownBlock):
		e.Unknown()
	}
	return string(got), err
}

// send sends a body, again if the connector misses a block, and reports how often it did.
func (u *tunnel) send(t *testing.T, owner, text string) (misses int) {
	t.Helper()
	got, err := u.attempt(owner, text, false)
	if errors.Is(err, ErrUnknownBlock) {
		misses++
		got, err = u.attempt(owner, text, true)
	}
	if err != nil || got != text {
		t.Fatalf("a body of %d bytes: %v, equal: %v", len(text), err, got == text)
	}
	return misses
}

func TestBodiesArrive(t *testing.T) {
	for _, held := range []*Known{nil, NewKnown(NewQuota(1<<20), 1<<20)} {
		for name, text := range map[string]string{
			"empty": "", "a byte": "x", "a piece": prose(1, pieceBytes), "more": prose(1, pieceBytes+1),
			"prose": prose(2, 1<<20),
			"zeros": strings.Repeat("\x00", 1<<20), "noise": noise(1 << 20),
			"mixed": prose(3, 99_999) + noise(99_999) + prose(4, 99_999),
		} {
			for how, slow := range map[string]func(io.Reader) io.Reader{
				"whole": func(r io.Reader) io.Reader { return r }, "half": iotest.HalfReader,
				"data and error": iotest.DataErrReader,
			} {
				e := NewEncoder(io.NopCloser(slow(strings.NewReader(text))), int64(len(text)), Options{Known: held, Owner: "key"})
				encoded, err := io.ReadAll(slow(e))
				if err != nil {
					t.Fatalf("%s, %s: encoding: %v", name, how, err)
				}
				d := NewDecoder(io.NopCloser(slow(bytes.NewReader(encoded))), int64(len(text)), NewStore(1<<20))
				if got, err := io.ReadAll(slow(d)); err != nil || string(got) != text {
					t.Errorf("%s, %s: %d of %d bytes, %v", name, how, len(got), len(text), err)
				}
				if most := len(text) + len(text)/500 + 64; len(encoded) > most {
					t.Errorf("%s: %d bytes became %d", name, len(text), len(encoded))
				}
			}
		}
	}
}

func TestTextIsCompressed(t *testing.T) {
	u := &tunnel{store: NewStore(0)}
	if u.send(t, "", prose(1, 1<<20)); u.sent > 1<<19 {
		t.Errorf("1 MiB of prose takes %d bytes", u.sent)
	}
}

// conversation returns the body of a turn: it grows at its end, before the last bracket.
func conversation(seed uint64, turn int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"model":"m","max_tokens":%d,"messages":[`, turn)
	for i := range turn {
		fmt.Fprintf(&b, `{"role":"user","content":%q},`, prose(seed+uint64(i), 10_000))
	}
	return b.String() + `{}]}`
}

func TestTurnsSendOnlyWhatIsNew(t *testing.T) {
	u := newTunnel(32<<20, 32<<20)
	for turn := 1; turn <= 40; turn++ {
		text := conversation(1, turn)
		if u.send(t, "key", text) > 0 {
			t.Fatalf("turn %d: the connector missed a block", turn)
		}
		if most := 10_000 + 2*maxBlock; u.sent > most {
			t.Fatalf("turn %d of %d bytes takes %d", turn, len(text), u.sent)
		}
	}
	whole := conversation(1, 40)
	for what, text := range map[string]string{
		"the same":                  whole,
		"an insertion":              whole[:200_000] + "something else" + whole[200_000:],
		"without a part":            whole[:100_000] + whole[150_000:],
		"another beginning and end": "xyz" + whole[1000:] + "xyz",
	} {
		if u.send(t, "key", text); u.sent > 4*maxBlock {
			t.Errorf("%s: %d bytes", what, u.sent)
		}
	}
}

// What one API key has sent is never referred to for another one.
func TestOwnersShareNothing(t *testing.T) {
	text := prose(1, 500_000)
	u := newTunnel(32<<20, 32<<20)
	u.send(t, "key 1", text)
	first := u.sent
	if u.send(t, "key 2", text); u.sent < first {
		t.Errorf("%d bytes for the second key, %d for the first", u.sent, first)
	}
	if u.send(t, "key 1", text); u.sent > first/20 {
		t.Errorf("%d bytes for the first key again", u.sent)
	}
}

// Nothing is referred to before the connector has it for certain.
func TestOnlyReceivedBlocksAreUsed(t *testing.T) {
	text := prose(1, 500_000)
	u := newTunnel(32<<20, 32<<20)
	for what, end := range map[string]func(*Encoder){
		"no answer": func(*Encoder) {}, "an unknown block": (*Encoder).Unknown, "answered early": (*Encoder).Received,
	} {
		e := NewEncoder(body(text), int64(len(text)), Options{Known: u.held, Owner: "key"})
		if _, err := io.CopyN(io.Discard, e, 1000); err != nil {
			t.Fatal(err)
		}
		if what != "answered early" {
			_, _ = io.Copy(io.Discard, e)
		}
		end(e)
		if len(u.held.blocks) > 0 {
			t.Errorf("%s: %d blocks are in use", what, len(u.held.blocks))
		}
	}
}

// Several conversations, in turns, need more than the connector keeps.
func TestSmallStore(t *testing.T) {
	u := newTunnel(400_000, 400_000)
	for turn := 1; turn <= 15; turn++ {
		for seed := range uint64(4) {
			if u.send(t, "key", conversation(100*seed, turn)) > 0 {
				t.Errorf("turn %d: the gateway did not count as the connector", turn)
			}
		}
	}
	if u.store.size > 400_000 || u.held.size > 400_000 {
		t.Errorf("%d bytes at the connector, %d at the gateway", u.store.size, u.held.size)
	}
	// A gateway that believes too much.
	u, misses := newTunnel(32<<20, 200_000), 0
	for turn := 1; turn <= 40; turn++ {
		misses += u.send(t, "key", conversation(1, turn))
	}
	if misses == 0 {
		t.Error("the connector missed nothing")
	}
}

func TestStoreIsBounded(t *testing.T) {
	s := NewStore(1000)
	s.put(1, make([]byte, 2000))
	for id := range uint64(100_000) {
		s.put(id+1, []byte{1})
		s.put(1, []byte{2}) // stays in use
	}
	s.put(2, []byte{2})
	s.put(2, make([]byte, 2000))
	if s.get(2) != nil {
		t.Error("an id has the bytes of an older block")
	}
	if n := int64(len(s.blocks)); n != int64(s.recent.Len()) || n > 1000/blockCost || s.size > 1000 || s.get(1) == nil {
		t.Errorf("%d blocks, %d bytes", n, s.size)
	}
}

// All tunnels together keep the quota of the gateway, and each gets a part of it.
func TestQuotaIsShared(t *testing.T) {
	const all = 100
	room := NewQuota(all)
	var tunnels []*tunnel
	for i := range 4 {
		tunnels = append(tunnels, &tunnel{held: NewKnown(room, 32<<20), store: NewStore(32 << 20)})
		for range 2 {
			for _, u := range tunnels {
				u.send(t, "key", prose(uint64(i), 1<<20))
			}
		}
		sum := 0
		for _, u := range tunnels {
			n := u.held.recent.Len()
			if sum += n; n < all/20 || len(u.held.blocks) > n {
				t.Errorf("of %d tunnels, one knows %d blocks", len(tunnels), n)
			}
		}
		if sum > all || int64(all-sum) != room.free.Load() {
			t.Errorf("%d tunnels know %d blocks, %d are free", len(tunnels), sum, room.free.Load())
		}
	}
	for _, u := range tunnels {
		u.held.Close()
		u.send(t, "key", prose(1, 100_000))
	}
	if room.free.Load() != all {
		t.Errorf("%d of %d are free in the end", room.free.Load(), all)
	}
}

func TestBodyOfAnotherLength(t *testing.T) {
	for _, length := range []int64{0, 99_999, 100_001, 200_000} {
		e := NewEncoder(body(prose(1, 100_000)), length, Options{})
		encoded, err := io.ReadAll(e)
		if length > 100_000 && err != io.ErrUnexpectedEOF || length < 100_000 && err != nil {
			t.Errorf("encoding %d of 100000 bytes: %v", length, err)
		}
		if length > 100_000 {
			continue
		}
		for _, stated := range []int64{max(length-1, 1), length + 1} {
			got, err := io.ReadAll(NewDecoder(body(string(encoded)), stated, NewStore(0)))
			if err == nil || int64(len(got)) > stated {
				t.Errorf("decoding %d bytes as %d: %d, %v", length, stated, len(got), err)
			}
		}
	}
}

// piece returns a piece without compression.
func piece(records []uint64, data string) string {
	var r []byte
	for _, v := range records {
		r = binary.AppendUvarint(r, v)
	}
	b := make([]byte, lengthBytes)
	lengths{len(r), len(data), len(data)}.put(b)
	return string(b) + string(r) + data
}

func TestMalformedBodies(t *testing.T) {
	const abc, big = 3<<1 | 1, 1 << 40
	bomb := compressor().EncodeAll(make([]byte, pieceBytes), nil)
	inflated := func(decoded int) string {
		b := make([]byte, lengthBytes)
		lengths{2, len(bomb), decoded}.put(b)
		return string(b) + "\x07\x00" + string(bomb)
	}
	for name, test := range map[string]struct {
		encoded string
		want    error
	}{
		"nothing":          {"", ErrMalformed},
		"half a head":      {piece([]uint64{abc, 0}, "abc")[:5], ErrMalformed},
		"half a piece":     {piece([]uint64{abc, 0}, "abc")[:14], ErrMalformed},
		"no records":       {piece(nil, "abc"), ErrMalformed},
		"too much data":    {piece([]uint64{abc, 0}, "abcd"), ErrMalformed},
		"too little data":  {piece([]uint64{abc, 0}, "ab"), ErrMalformed},
		"an empty literal": {piece([]uint64{1, 0, abc, 0}, "abc"), ErrMalformed},
		"a huge literal":   {piece([]uint64{big | 1, 0}, "abc"), ErrMalformed},
		"half a record":    {piece([]uint64{abc}, "abc"), ErrMalformed},
		"no varint": {
			strings.Repeat("\x00", 3) + "\x0b" + strings.Repeat("\x00", 8) + strings.Repeat("\xff", 11),
			ErrMalformed,
		},
		"an unknown block": {piece([]uint64{2 << 1}, ""), ErrUnknownBlock},
		"block 0":          {piece([]uint64{abc, 0, 0}, "abc"), ErrUnknownBlock},
		"a longer body":    {piece([]uint64{abc, 1, 1 << 1}, "abc"), ErrMalformed},
		"another piece":    {piece([]uint64{abc, 1}, "abc") + piece([]uint64{1 << 1}, ""), ErrMalformed},
		"a bomb":           {inflated(3), ErrMalformed},
		"a larger bomb":    {inflated(pieceBytes - 1), ErrMalformed},
		"too large":        {"\x00\x00\x00\x02" + "\x00\x00\x00\x03" + "\x00\x00\x80\x01", ErrMalformed},
		"grown data":       {"\x00\x00\x00\x02" + "\x00\x00\x00\x04" + "\x00\x00\x00\x03", ErrMalformed},
		"no zstd":          {"\x00\x00\x00\x02" + "\x00\x00\x00\x02" + "\x00\x00\x00\x03" + "\x07\x00xx", ErrMalformed},
	} {
		got, err := io.ReadAll(NewDecoder(body(test.encoded), 3, NewStore(1000)))
		if !errors.Is(err, test.want) || len(got) > 3 {
			t.Errorf("%s: %q, %v, want %v", name, got, err, test.want)
		}
	}
}

func TestDecode(t *testing.T) {
	for value, ok := range map[string]bool{"3": true, "-1": false, "x": false, "": false, "99999999999999999999": false} {
		r := &http.Request{
			Header: http.Header{Field: {value}}, Body: body(piece([]uint64{3<<1 | 1, 0}, "abc")),
			ContentLength: -1,
		}
		if err := Decode(r, NewStore(0)); ok != (err == nil) {
			t.Errorf("%q: %v", value, err)
		}
		if !ok {
			continue
		}
		if got, err := io.ReadAll(r.Body); string(got) != "abc" || err != nil || r.ContentLength != 3 || len(r.Header) > 0 {
			t.Errorf("%q, %v, length %d, %v", got, err, r.ContentLength, r.Header)
		}
	}
	r := &http.Request{Header: http.Header{}, Body: http.NoBody}
	if err := Decode(r, nil); err != nil || r.Body != http.NoBody {
		t.Errorf("another request: %v", err)
	}
}
