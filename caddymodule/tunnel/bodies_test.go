package tunnel

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/link/bodies"
)

// keeper is the handler of a connector that keeps bodies. It answers with the body.
type keeper struct {
	tunnel        *bodies.Tunnel
	wire          atomic.Int64 // bytes of bodies in the tunnel
	encoded, lost atomic.Int64 // requests: encoded ones, and those with unknown bodies
}

func newKeeper(limit int64) *keeper {
	return &keeper{tunnel: bodies.NewCache(upTo(limit)).NewTunnel(math.MaxInt64)}
}

func upTo(limit int64) func(int64) int64 { return func(size int64) int64 { return size - limit } }

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header[bodies.Field] != nil {
		k.encoded.Add(1)
	}
	r.Body = &counted{r.Body, &k.wire}
	err := bodies.Decode(r, k.tunnel)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(r.Body)
	}
	switch {
	case err == nil:
		_, _ = w.Write(body)
		return
	case errors.Is(err, link.ErrUnknownBody):
		k.lost.Add(1)
		w.(interface{ Abort(*link.Failure) }).Abort(link.ErrUnknownBody)
	default:
		w.(interface{ Abort(*link.Failure) }).Abort(link.ErrInternal)
	}
}

// counted counts the bytes that are read.
type counted struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// keeping returns the options of a gateway that keeps bodies.
func keeping() Options { return Options{Bodies: bodies.NewCache(upTo(64 << 20))} }

// encodeAll encodes bodies on this machine too.
func encodeAll(g *testGateway) *testGateway {
	g.encodeFrom = 0
	return g
}

// keep brings up a connector that keeps as many bytes as it says, or fewer.
func (g *testGateway) keep(t testing.TB, id string, says, keeps int64) (*keeper, *Session) {
	t.Helper()
	k, h := newKeeper(keeps), hello(id)
	h.KeptPrompts = &says
	c, err := g.dial(t, g.socket(t), h, k)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // on a slow machine, the test lasts longer than an idle session
		for t.Context().Err() == nil && c.control.Send(link.Ping{}) == nil {
			time.Sleep(time.Second)
		}
	}()
	return k, g.mustSession(t, id)
}

// prompt sends a body for a key, checks that it arrives, and returns the bytes that it takes in the tunnel.
func (k *keeper) prompt(t testing.TB, s *Session, key, body string) int64 {
	before := k.wire.Load()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := s.Send(post(body).WithContext(ctx), key)
	if err != nil {
		t.Errorf("a body of %d bytes: %v", len(body), err)
		return 0
	}
	defer answer.Body.Close()
	if got, err := io.ReadAll(answer.Body); err != nil || string(got) != body {
		t.Errorf("a body of %d bytes: %d are returned, %v", len(body), len(got), err)
	}
	return k.wire.Load() - before
}

// sources is the text of this repository's Go files, about as agents send it.
var sources = sync.OnceValue(func() string {
	var all strings.Builder
	files, _ := filepath.Glob("../*/*.go")
	for _, name := range files {
		text, _ := os.ReadFile(name)
		all.Write(text)
	}
	return all.String()
})

// turn returns the n-th request of a conversation, of n parts of size bytes.
func turn(conversation, n, size int) string {
	random, b := rand.New(rand.NewPCG(uint64(conversation), 1)), new(strings.Builder)
	for range n {
		at := random.IntN(len(sources()) - size)
		b.WriteString(sources()[at : at+size])
	}
	return b.String() + "the end"
}

// A connector that keeps less than it has announced misses bodies, also in requests that run in parallel. Each is
// answered nevertheless, once.
func TestUnknownBodies(t *testing.T) {
	overBothReal(t, func(t *testing.T, newGateway gatewayMaker) {
		k, s := encodeAll(newGateway(t, keeping())).keep(t, "con_1", 32<<20, 300_000)
		var all sync.WaitGroup
		for conversation := range 4 {
			all.Go(func() {
				for n := 1; n <= 8; n++ {
					k.prompt(t, s, "key", turn(conversation, n, 15_000))
				}
			})
		}
		all.Wait()
		if k.lost.Load() == 0 {
			t.Error("the connector missed no body")
		}
		if c := s.hub.Counters(); c.Requests != 4*8 || c.Failed > 0 {
			t.Errorf("%+v", c)
		}
	})
}

// What a connector does not announce is not used: encoding at all, or bodies that it keeps. The same is true of
// requests without a key, and of small ones.
func TestWhatIsEncoded(t *testing.T) {
	body, none, some := turn(1, 10, 15_000), int64(0), int64(1<<20)
	for name, test := range map[string]struct {
		kept           *int64
		key, body      string
		from           time.Duration
		encoded, known bool
	}{
		"an older connector": {nil, "key", body, 0, false, false},
		"without bodies":     {&none, "key", body, 0, true, false},
		"with bodies":        {&some, "key", body, 0, true, true},
		"without a key":      {&some, "", body, 0, true, false},
		"a small one":        {&some, "key", "x", 0, false, false},
		"a short line":       {&some, "key", body, time.Minute, false, false},
	} {
		g := newGateway(t, keeping())
		g.encodeFrom = test.from
		k, h := newKeeper(1<<20), hello("con_1")
		h.KeptPrompts = test.kept
		if _, err := g.dial(t, listenLoopback(t), h, k); err != nil {
			t.Fatal(err)
		}
		s := g.mustSession(t, "con_1")
		k.prompt(t, s, test.key, body)
		k.encoded.Store(0)
		took := k.prompt(t, s, test.key, test.body)
		if encoded, known := k.encoded.Load() > 0, took < 2000 && len(test.body) > 2000; encoded != test.encoded ||
			known != test.known {
			t.Errorf("%s: encoded %v, known %v", name, encoded, known)
		}
	}
}

// A new tunnel, of the same connector or another one, begins with nothing, and a request may use each.
func TestBodiesOfOtherTunnels(t *testing.T) {
	g := encodeAll(newGateway(t, keeping()))
	body := turn(1, 10, 15_000)
	for _, id := range []string{"con_1", "con_1", "con_2"} {
		k, s := g.keep(t, id, 1<<20, 1<<20)
		for range 3 {
			k.prompt(t, s, "key", body)
		}
		if took := k.wire.Load(); k.lost.Load() > 0 || took < int64(len(body))/10 || took > int64(len(body)) {
			t.Errorf("%d unknown bodies, %d bytes", k.lost.Load(), took)
		}
		s.close(link.CloseReplaced)
	}
}
