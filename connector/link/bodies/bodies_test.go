package bodies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

// ends are both ends of a tunnel.
type ends struct {
	testing.TB
	gateway, connector *Tunnel
	wire               int // bytes of the last body in the tunnel
}

func bound(n int64) func(int64) int64 { return func(size int64) int64 { return size - n } }

func newEnds(t testing.TB, gateway, connector int64) *ends {
	return &ends{
		TB: t, gateway: NewCache(bound(gateway)).NewTunnel(connector),
		connector: NewCache(bound(connector)).NewTunnel(math.MaxInt64),
	}
}

func request(body string) *http.Request {
	return &http.Request{
		Header: http.Header{"A": {"b"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// receive returns the request as the connector receives it.
func (e *ends) receive(s *Sent) *http.Request {
	e.Helper()
	wire, err := io.ReadAll(s.Body)
	if err != nil {
		e.Fatal(err)
	}
	e.wire = len(wire)
	return &http.Request{Header: s.Header.Clone(), Body: io.NopCloser(bytes.NewReader(wire)), ContentLength: -1}
}

// decode decodes a request at the connector, and returns its body.
func (e *ends) decode(r *http.Request) (string, error) {
	e.Helper()
	if err := Decode(r, e.connector); err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && (int64(len(body)) != r.ContentLength || r.Header.Get(Field) != "") {
		e.Errorf("%d bytes of length %d, %v", len(body), r.ContentLength, r.Header)
	}
	return string(body), err
}

// send sends a body, and reports whether it had to be sent whole after the connector did not know its base.
func (e *ends) send(key, body string) (again bool) {
	e.Helper()
	s := Encode(request(body), e.gateway, key)
	got, err := e.decode(e.receive(s))
	if again = errors.Is(err, link.ErrUnknownBody) && s.Refers(); again {
		got, err = e.decode(e.receive(s.Whole()))
	}
	s.End(err == nil)
	if err != nil || got != body {
		e.Errorf("a body of %d bytes: got %d, %v", len(body), len(got), err)
	}
	return again
}

// text returns n random bytes of text that do not compress well.
func text(seed uint64, n int) string {
	if all, ok := texts.Load(seed); ok && len(all.(string)) >= n {
		return all.(string)[:n]
	}
	random, b := rand.New(rand.NewPCG(seed, 1)), make([]byte, n)
	for i := range b {
		b[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[random.IntN(64)]
	}
	texts.Store(seed, string(b))
	return string(b)
}

var texts sync.Map

func conversation(id uint64, turns int) string {
	return `{"messages":[` + text(id, turns*10_000) + `],"tools":[` + text(0, 20_000) + `]}`
}

// From the second turn on, only what is new is sent, for many conversations of a key.
func TestTurns(t *testing.T) {
	e := newEnds(t, 64<<20, 32<<20)
	for turn := 1; turn <= 20; turn++ {
		for id := uint64(1); id <= maxKept; id++ {
			if e.send("key", conversation(id, turn)) || turn > 1 && e.wire > 10_100 {
				t.Errorf("turn %d takes %d bytes", turn, e.wire)
			}
		}
	}
	if n := e.gateway.cache.lru.Len(); n != maxKept { // later turns replace earlier ones
		t.Errorf("the gateway keeps %d bodies", n)
	}
}

// A short request does not hold a long base until its answer: the cache may have dropped that.
func TestBaseIsNotHeld(t *testing.T) {
	e := newEnds(t, 8<<20, 8<<20)
	e.send("key", text(1, 1<<20))
	s := Encode(request(text(2, MinBody)), e.gateway, "key")
	defer s.End(true)
	if !s.Refers() || s.base != nil {
		t.Errorf("it refers to a base: %v, and holds one: %v", s.Refers(), s.base != nil)
	}
}

// A tunnel may end while a request opens a body. The race detector fails if its limit is read without care.
func TestCloseMeanwhile(t *testing.T) {
	for range 100 {
		e := newEnds(t, 1<<20, 1<<20)
		var closing sync.WaitGroup
		closing.Go(e.gateway.Close)
		if b := e.gateway.open("key", 0, 10); b != nil {
			b.end(true, nil)
		}
		closing.Wait()
		if c := e.gateway.cache; c.lru.Len() != 0 || c.size != 0 {
			t.Fatalf("%d bodies of %d bytes are left", c.lru.Len(), c.size)
		}
	}
}

// A request looks at the bodies of its tunnel alone, however many the process keeps.
func TestOtherTunnelsCostNothing(t *testing.T) {
	c := NewCache(func(int64) int64 { return 0 })
	other, own := c.NewTunnel(1<<30), c.NewTunnel(1<<30)
	for range 1000 {
		other.open("key", 0, 10).end(true, nil)
	}
	looked := 0
	own.find(maxKept, func(*body) bool { looked++; return false })
	allocated := testing.AllocsPerRun(10, func() { own.find(maxKept, func(*body) bool { return false }) })
	if looked > 0 || allocated > 0 {
		t.Errorf("it looks at %d bodies, and allocates %v times", looked, allocated)
	}
	if other.Close(); c.size != 0 || c.lru.Len() != 0 || len(other.bodies) != 0 {
		t.Errorf("after the end of the tunnel, %d bytes are kept", c.size)
	}
}

// Once a body was read, the cache alone holds it: the request may run for minutes, and the cache may drop it.
func TestReadBodyIsNotHeld(t *testing.T) {
	e := newEnds(t, 1<<20, 1<<20)
	s := Encode(request(conversation(1, 1)), e.gateway, "key")
	r := e.receive(s)
	if err := Decode(r, e.connector); err != nil {
		t.Fatal(err)
	}
	d := r.Body.(*decoder)
	if _, err := io.Copy(io.Discard, d); err != nil || d.kept != nil || e.connector.cache.lru.Len() != 1 {
		t.Errorf("%v; the decoder has the body: %t", err, d.kept != nil)
	}
	s.End(true)
}

// Keys share nothing, even if their texts are equal.
func TestKeysShareNoBodies(t *testing.T) {
	e := newEnds(t, 64<<20, 32<<20)
	body := conversation(1, 10)
	e.send("a", body)
	whole := e.wire
	for _, key := range []string{"b", "", ""} {
		if e.send(key, body); e.wire != whole {
			t.Errorf("key %q: %d bytes instead of %d", key, e.wire, whole)
		}
	}
	if e.send("a", body); e.wire > 100 {
		t.Errorf("the same key: %d bytes", e.wire)
	}
	e.gateway.cache.Forget("a")
	if e.send("a", body); e.wire != whole {
		t.Errorf("after the end of the key: %d bytes", e.wire)
	}
	e.gateway.Close()
	if e.send("b", body); e.wire != whole || e.gateway.cache.size != 0 {
		t.Errorf("after the end of the tunnel: %d bytes, %d kept", e.wire, e.gateway.cache.size)
	}
}

// A body is received although its base is dropped meanwhile. A request that comes later is sent whole.
func TestEvictedBase(t *testing.T) {
	e := newEnds(t, 64<<20, 1<<20)
	e.send("key", conversation(1, 10))
	s := Encode(request(conversation(1, 11)), e.gateway, "key")
	r := e.receive(s)
	if err := Decode(r, e.connector); err != nil {
		t.Fatal(err)
	}
	e.connector.find(0, func(*body) bool { return true })
	got, err := io.ReadAll(r.Body)
	if s.End(err == nil); string(got) != conversation(1, 11) || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	e.connector.find(0, func(*body) bool { return true })
	if size := e.connector.cache.size; size != 0 {
		t.Errorf("%d bytes are left", size)
	}
	if again := e.send("key", conversation(1, 12)); !again {
		t.Error("the connector has found a base that it dropped")
	}
	if again := e.send("key", conversation(1, 13)); again || e.wire > 10_100 {
		t.Errorf("the next turn takes %d bytes", e.wire)
	}
}

// Both ends stay within their bounds, and large bodies do not displace all others in vain.
func TestBounds(t *testing.T) {
	for _, test := range [][2]int64{{2 << 20, 1 << 20}, {1 << 20, 2 << 20}, {0, 1 << 20}, {1 << 20, 0}} {
		e, again := newEnds(t, test[0], test[1]), 0
		random := rand.New(rand.NewPCG(1, 2))
		for range 100 {
			if e.send(fmt.Sprint(random.IntN(5)), conversation(random.Uint64N(5), 1+random.IntN(30))) {
				again++
			}
			if g, c := e.gateway.cache.size, e.connector.cache.size; g > test[0] || c > test[1] {
				t.Fatalf("%d and %d bytes of %d", g, c, test)
			}
		}
		if again > 3 {
			t.Errorf("%d of 100 requests were sent twice", again)
		}
	}
	e := newEnds(t, 200_000, 400_000) // the gateway has space for two
	for turn := 5; turn < 8; turn++ {
		e.send("a", text(9, 60_000))
		if again := e.send("b", conversation(1, turn)); again || turn > 5 && e.wire > 10_100 {
			t.Errorf("turn %d takes %d bytes: a body displaces its own base", turn, e.wire)
		}
	}
	e = newEnds(t, 1<<20, 1<<20)
	e.send("key", conversation(1, 1))
	e.send("key", text(1, 600_000))
	if e.send("key", conversation(1, 2)); e.wire > 10_100 {
		t.Errorf("after a body over the bounds: %d bytes", e.wire)
	}
}

// A difference that ends early, or is changed, is an error, and no byte is wrong until then.
func TestDamagedBodies(t *testing.T) {
	e := newEnds(t, 1<<20, 1<<20)
	e.send("key", conversation(1, 2))
	next := conversation(1, 2) + text(2, 500)
	s := Encode(request(next), e.gateway, "key")
	wire, _ := io.ReadAll(s.Body)
	lost := errors.New("the tunnel was lost")
	for n := range len(wire) {
		for _, end := range []error{io.EOF, lost} {
			body := io.MultiReader(bytes.NewReader(wire[:n]), failing{end})
			r := &http.Request{Header: s.Header.Clone(), Body: io.NopCloser(body), ContentLength: -1}
			got, err := e.decode(r)
			if !strings.HasPrefix(next, got) || end == lost && err != lost ||
				end == io.EOF && !errors.Is(err, link.ErrInternal) {
				t.Fatalf("after %d bytes: %d, %v", n, len(got), err)
			}
		}
	}
	if e.connector.cache.lru.Len() != 1 {
		t.Error("a damaged body was kept")
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// What a gateway must not send is refused.
func TestMalformedBodies(t *testing.T) {
	e := newEnds(t, 1<<20, 1<<20)
	e.send("key", conversation(1, 2))
	s := Encode(request(conversation(1, 3)), e.gateway, "key")
	wire, _ := io.ReadAll(s.Body)
	for name, test := range map[string]struct {
		change func(*head)
		want   error
	}{
		"as it is":            {func(*head) {}, nil},
		"another base":        {func(h *head) { h.Base.Number = 9 }, link.ErrUnknownBody},
		"a base of 1 byte":    {func(h *head) { h.Base.Length, h.Base.Begin, h.Base.End = 1, 0, 0 }, link.ErrUnknownBody},
		"another CRC":         {func(h *head) { h.Base.CRC32C++ }, link.ErrUnknownBody},
		"too short":           {func(h *head) { h.Length-- }, link.ErrInternal},
		"too long":            {func(h *head) { h.Length++ }, link.ErrInternal},
		"a longer beginning":  {func(h *head) { h.Base.Begin++ }, link.ErrInternal},
		"a shorter end":       {func(h *head) { h.Base.End-- }, link.ErrInternal},
		"more than the base":  {func(h *head) { h.Base.Begin = h.Base.Length }, link.ErrInternal},
		"a negative length":   {func(h *head) { h.Length = -1 }, link.ErrInternal},
		"a negative part":     {func(h *head) { h.Base.Begin = -1 }, link.ErrInternal},
		"the smallest length": {func(h *head) { h.Base.Length, h.Base.End = math.MinInt64, math.MaxInt64 }, link.ErrInternal},
		"an endless length":   {func(h *head) { h.Length, h.Base = math.MaxInt64, nil }, link.ErrInternal},
	} {
		var h head
		_ = json.Unmarshal([]byte(s.Header.Get(Field)), &h)
		test.change(&h)
		field, _ := json.Marshal(h)
		r := &http.Request{Header: http.Header{Field: {string(field)}}, Body: io.NopCloser(bytes.NewReader(wire))}
		if _, err := e.decode(r); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, field := range [][]string{{"x"}, {"{}", "{}"}, {`{"length":"a"}`}} {
		r := &http.Request{Header: http.Header{Field: field}, Body: io.NopCloser(bytes.NewReader(wire))}
		if err := Decode(r, e.connector); !errors.Is(err, link.ErrInternal) {
			t.Errorf("%q: %v", field, err)
		}
	}
}
