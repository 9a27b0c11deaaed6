package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/postern-dev/postern/connector/text"
)

// buffered is a control stream in memory.
type buffered struct{ bytes.Buffer }

var messages = []Message{
	Hello{
		Connector: "con_1", Secret: "s3cret", Instance: "i", Name: "gpu <box>", Version: "v1", OS: "linux/amd64",
		Upstreams: []string{"ollama", "vllm"},
		Routes:    []Route{{Model: "qwen*", Upstream: "ollama", UpstreamModel: "qwen3:8b"}, {Model: "*", Upstream: "vllm"}},
	},
	claim(),
	Hello{
		Connector: "con_1", Secret: "s3cret", OtherEdges: []string{"edge-a"},
		Upstreams: []string{"ollama"}, OneModel: []string{"ollama"},
	},
	Welcome{Session: "x", Version: "v1", HeartbeatMillis: 1500},
	Welcome{Session: "x", Version: "v1", HeartbeatMillis: 1500, Edges: edges()},
	edges(),
	Pending{Fingerprint: "3f9a 07c2 b1d4", ExpiresAt: time.Date(2026, 11, 21, 14, 38, 0, 0, time.UTC)},
	Grant{TunnelToken: "ptt_s3cret"},
	Deny{Code: DenyCredentials, Message: "no", Retry: true},
	Ping{},
	Pong{HeartbeatMillis: 10000},
	Report{Upstreams: []UpstreamReport{{Name: "a", Reachable: true, Models: []string{"x"}, Open: true}, {Name: "b"}}},
	Report{Upstreams: []UpstreamReport{{Name: "a", Models: []string{"x"}, Windows: map[string]int{"x": 4096}}}},
	Recheck{Upstream: "a"},
	Drain{},
	DrainOK{},
}

func TestControlRoundTrip(t *testing.T) {
	var wire buffered
	c := NewControl(&wire)
	for _, m := range messages {
		if err := c.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range messages {
		got, err := c.Receive()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("received %#v, %v; want %#v", got, err, want)
		}
	}
	if _, err := c.Receive(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestControlTruncated(t *testing.T) {
	var wire buffered
	if err := NewControl(&wire).Send(messages[0]); err != nil {
		t.Fatal(err)
	}
	whole := wire.Bytes()
	for n := range whole {
		var cut buffered
		cut.Write(whole[:n])
		if _, err := NewControl(&cut).Receive(); err != io.EOF && err != io.ErrUnexpectedEOF {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
}

func TestControlUnknownMessages(t *testing.T) {
	var wire buffered
	frame(&wire, `{"type":"later","data":{"a":1}}`)
	frame(&wire, `{"type":"ping","data":{"later":true},"also":1}`)
	c := NewControl(&wire)
	if _, err := c.Receive(); !errors.Is(err, ErrUnknownMessage) {
		t.Errorf("unknown message: %v", err)
	}
	if m, err := c.Receive(); m != (Ping{}) || err != nil {
		t.Errorf("after it: %v, %v", m, err)
	}
}

func TestControlMalformed(t *testing.T) {
	for _, text := range []string{
		"", "x", "[]", `{"type":1}`, `{"type":"hello","data":"s3cret"}`, `{"type":"hello","data":{"secret":["s3cret"]}}`,
	} {
		var wire buffered
		frame(&wire, text)
		_, err := NewControl(&wire).Receive()
		wantError(t, err, ErrMalformed)
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error quotes the message: %v", err)
		}
	}
	var wire buffered
	wire.WriteString("\xff\xff\xff\xff")
	_, err := NewControl(&wire).Receive()
	wantError(t, err, ErrMalformed)
	if err := NewControl(&wire).Send(Deny{Message: strings.Repeat("x", maxControl)}); err == nil {
		t.Error("a message over the limit was sent")
	}
}

// largestHello returns the hello that takes the most bytes of all that pass the
// check.
func largestHello() Hello {
	field := func(n int) string { return strings.Repeat(`"`, n) }
	h := Hello{
		Connector: field(MaxField), Secret: field(MaxField), Instance: field(MaxField),
		Name: field(MaxField), Version: field(MaxField), OS: field(MaxField),
	}
	for i := range MaxUpstreams {
		name := fmt.Sprintf("%064d", i)
		h.Upstreams, h.OneModel = append(h.Upstreams, name), append(h.OneModel, name)
		h.Routes = append(h.Routes, Route{Model: field(MaxField), Upstream: name, UpstreamModel: field(MaxField)})
	}
	return h
}

// TestLargestHello: one that passes the check can be sent, and what is larger is
// refused on both sides. All printable characters are, at worst, as long as a
// quotation mark is.
func TestLargestHello(t *testing.T) {
	h := largestHello()
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	var wire buffered
	if err := NewControl(&wire).Send(h); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, %d parts", wire.Len(), parts(wire.Bytes()[4:]))
	if n := parts(wire.Bytes()[4:]); 2*n > maxParts {
		t.Errorf("it has %d parts", n)
	}
	if got, err := NewControl(&wire).Receive(); err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("received %v", err)
	}
	var printable []string
	for r := range unicode.MaxRune + 1 {
		if s := string(r); r != ',' && text.IsPrintable(s) {
			printable = append(printable, s)
		}
	}
	quoted, err := plainJSON(strings.Join(printable, ","))
	wantError(t, err, nil)
	for i, q := range strings.Split(strings.Trim(string(quoted), `"`), ",") {
		if s := printable[i]; len(q) > 2*len(s) {
			t.Fatalf("%q takes %d bytes", s, len(q))
		}
	}
	h.Routes = append(h.Routes, h.Routes...)
	if err := NewControl(&wire).Send(h); err == nil || !strings.Contains(err.Error(), "over the limit") {
		t.Errorf("a larger one: %v", err)
	}
	frame(&wire, strings.Repeat(" ", maxControl+1))
	_, err = NewControl(&wire).Receive()
	wantError(t, err, ErrMalformed)
	wantError(t, err, ErrOversized)
}

// TestManyParts: a few bytes each, and many more of memory. They are not made.
func TestManyParts(t *testing.T) {
	for name, data := range map[string]string{
		"routes":    `{"routes":[` + strings.Repeat("{},", 90_000) + `{}]}`,
		"upstreams": `{"upstreams":[` + strings.Repeat(`"",`, 90_000) + `""]}`,
		"quotes":    `{"upstreams":["\"\\",` + strings.Repeat(`"",`, maxParts+1) + `""]}`,
	} {
		var wire buffered
		frame(&wire, `{"type":"hello","data":`+data+`}`)
		var err error
		before := allocated()
		_, err = NewControl(&wire).Receive()
		wantError(t, err, ErrOversized)
		if n := allocated() - before; n > 5*maxControl {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}
	var wire buffered
	frame(&wire, `{"type":"hello","data":{"name":"`+strings.Repeat(`,\"`, 2*maxParts)+`"}}`)
	if _, err := NewControl(&wire).Receive(); err != nil {
		t.Errorf("commas in a text: %v", err)
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestReceiveCounted: who counts is asked before the memory is taken, and only
// for large messages.
func TestReceiveCounted(t *testing.T) {
	errFull := errors.New("full")
	for _, test := range []struct{ size, room, taken int }{
		{uncounted, 0, 0},
		{uncounted + 1, 1, 1},
		{uncounted + 1, 0, 0},
		{maxControl, maxControl, maxControl - uncounted},
		{maxControl, 10 * uncounted, 7 * uncounted},
	} {
		var wire buffered
		want := Deny{Message: strings.Repeat("x",
			test.size-len(`{"type":"deny","data":{"code":"","message":"","retry":false}}`))}
		if err := NewControl(&wire).Send(want); err != nil || wire.Len() != 4+test.size {
			t.Fatal(wire.Len(), err)
		}
		taken := 0
		got, err := NewControl(&wire).ReceiveCounted(func(n int) error {
			if taken+n > test.room {
				return errFull
			}
			taken += n
			return nil
		})
		if whole := test.room >= test.size-uncounted; taken != test.taken || whole && (got != want || err != nil) ||
			!whole && err != errFull {
			t.Errorf("%d bytes with room for %d: took %d, %v", test.size, test.room, taken, err)
		}
	}
}

// TestControlConcurrentSends: frames do not mix.
func TestControlConcurrentSends(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	sender, receiver := NewControl(a), NewControl(b)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				_ = sender.Send(messages[0])
			}
		})
	}
	for range 200 {
		if m, err := receiver.Receive(); err != nil || !reflect.DeepEqual(m, messages[0]) {
			t.Fatalf("%v, %v", m, err)
		}
	}
	wg.Wait()
}

func frame(w io.Writer, text string) {
	_ = binary.Write(w, binary.BigEndian, uint32(len(text)))
	_, _ = io.WriteString(w, text)
}

// FuzzControl: whatever comes, receiving ends, and what was received can be
// sent and received again.
func FuzzControl(f *testing.F) {
	for _, m := range messages {
		var wire buffered
		_ = NewControl(&wire).Send(m)
		f.Add(wire.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var wire buffered
		wire.Write(data)
		c := NewControl(&wire)
		for {
			m, err := c.Receive()
			if errors.Is(err, ErrUnknownMessage) {
				continue
			}
			if err != nil {
				return
			}
			switch m := m.(type) {
			case Hello:
				_ = m.Check()
			case Report:
				_ = m.Check()
			}
			var again buffered
			other := NewControl(&again)
			if err := other.Send(m); err != nil {
				t.Fatal(err)
			}
			if _, err := other.Receive(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestHelloCheck(t *testing.T) {
	good := func() Hello {
		return Hello{
			Connector: "c", Secret: "s", Upstreams: []string{"a", "b-2"}, Routes: []Route{{"m", "a", ""}},
			OtherEdges: []string{"a"},
		}
	}
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Hello){
		"no upstream":          func(h *Hello) { h.Upstreams = nil },
		"too many upstreams":   func(h *Hello) { h.Upstreams = make([]string, MaxUpstreams+1) },
		"bad upstream":         func(h *Hello) { h.Upstreams[1] = "a b" },
		"empty upstream":       func(h *Hello) { h.Upstreams[1] = "" },
		"upstream twice":       func(h *Hello) { h.Upstreams[1] = "a" },
		"one model nowhere":    func(h *Hello) { h.OneModel = []string{"c"} },
		"too many one models":  func(h *Hello) { h.OneModel = []string{"a", "a", "b-2"} },
		"route to nowhere":     func(h *Hello) { h.Routes[0].Upstream = strings.Repeat("c", 1000) },
		"unprintable model":    func(h *Hello) { h.Routes[0].Model = "a\x00" },
		"unprintable id":       func(h *Hello) { h.Routes[0].UpstreamModel = "a\xff" },
		"route of nothing":     func(h *Hello) { h.Routes[0].Model = "" },
		"too many routes":      func(h *Hello) { h.Routes = make([]Route, MaxRoutes+1) },
		"long name":            func(h *Hello) { h.Name = strings.Repeat("n", MaxField+1) },
		"terminal escape":      func(h *Hello) { h.Version = "\x1b[31m" },
		"long upstream's name": func(h *Hello) { h.Upstreams[1] = strings.Repeat("u", 65) },
		"negative requests":    func(h *Hello) { h.MaxRequests = -1 },
		"too many requests":    func(h *Hello) { h.MaxRequests = MaxRequestsLimit + 1 },
		"too many edges":       func(h *Hello) { h.OtherEdges = make([]string, MaxOtherEdges+1) },
		"edge without a name":  func(h *Hello) { h.OtherEdges = []string{"a", ""} },
		"long name of an edge": func(h *Hello) { h.OtherEdges = []string{strings.Repeat("x", MaxField+1)} },
		"escape in an edge":    func(h *Hello) { h.OtherEdges = []string{"\x1b[2J"} },
	} {
		h := good()
		change(&h)
		if err := h.Check(); err == nil || len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSecretsStayHidden: neither fmt nor slog shows them.
func TestSecretsStayHidden(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	for _, v := range []any{
		Hello{Connector: "con_1", Secret: "s3cret"},
		claim(),
		Token{Connector: "con_1", Secret: "s3cret"},
		Grant{TunnelToken: "ptt_s3cret"},
	} {
		log.Info("x", "value", v)
		fmt.Fprintf(&out, "%v %+v %#v %s %d", v, v, v, v, v)
	}
	for _, secret := range []string{"s3cret", "PAIR-", "czNjcmV0", "115 51"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("output with %q: %s", secret, &out)
		}
	}
}
