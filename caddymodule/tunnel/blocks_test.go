package tunnel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/link/blocks"
)

// blockKeeper is the handler of a connector that keeps blocks. It answers with the body.
type blockKeeper struct {
	store         *blocks.Store
	coded, plain  atomic.Int64 // bytes of bodies, in the tunnel and decoded
	encoded, lost atomic.Int64 // requests: encoded ones, and those with unknown blocks
}

func (k *blockKeeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header[blocks.Field] != nil {
		k.encoded.Add(1)
	}
	r.Body = &counted{r.Body, &k.coded}
	if err := blocks.Decode(r, k.store); err != nil {
		panic(err)
	}
	body, err := io.ReadAll(r.Body)
	k.plain.Add(int64(len(body)))
	failed := link.ErrInternal
	switch {
	case err == nil && r.Header.Get("Discard") != "":
		return
	case err == nil:
		_, _ = w.Write(body)
		return
	case errors.Is(err, blocks.ErrUnknownBlock):
		k.lost.Add(1)
		failed = link.ErrUnknownBlock
	}
	w.(interface{ Abort(*link.Failure) }).Abort(failed)
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

// encodeAll encodes bodies on this machine too.
func encodeAll(g *testGateway) *testGateway {
	g.encodeFrom = 0
	return g
}

// keep brings up a connector that keeps as many bytes of blocks as it says, or fewer.
func (g *testGateway) keep(t testing.TB, says, keeps int64) (*blockKeeper, *Session) {
	t.Helper()
	k := &blockKeeper{store: blocks.NewStore(keeps)}
	h := hello("con_1")
	h.Blocks = &says
	c, err := g.dial(t, g.socket(t), h, k)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // on a slow machine, the test lasts longer than an idle session
		for t.Context().Err() == nil && c.control.Send(link.Ping{}) == nil {
			time.Sleep(time.Second)
		}
	}()
	return k, g.mustSession(t, "con_1")
}

// prompt sends a body for a key, and checks that it arrives.
func prompt(t testing.TB, s *Session, key, body string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := s.Send(repeatable(body).WithContext(ctx), fair.Client{Key: key})
	if err != nil {
		t.Errorf("a body of %d bytes: %v", len(body), err)
		return
	}
	defer answer.Body.Close()
	if got, err := io.ReadAll(answer.Body); err != nil || string(got) != body {
		t.Errorf("a body of %d bytes: %d are returned, %v", len(body), len(got), err)
	}
}

func repeatable(body string) *http.Request {
	r := post(body)
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
	return r
}

// sources is the text of this repository's Go files, about as agents send it.
var sources = sync.OnceValue(func() []byte {
	var all []byte
	files, _ := filepath.Glob("../*/*.go")
	for _, name := range files {
		text, _ := os.ReadFile(name)
		all = append(all, text...)
	}
	return bytes.Repeat(all, 1+(8<<20)/max(len(all), 1))
})

// turn returns the n-th request of a conversation, of n parts of size bytes.
func turn(conversation, n, size int) string {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	random := rand.New(rand.NewPCG(uint64(conversation), 1))
	messages := make([]message, n)
	for i := range messages {
		at := random.IntN(len(sources()) - size)
		messages[i] = message{"user", string(sources()[at : at+size])}
	}
	text, _ := json.Marshal(map[string]any{"model": "m", "messages": messages, "stream": true})
	return string(text)
}

func TestTurnsOfConversation(t *testing.T) {
	overBothReal(t, func(t *testing.T, newGateway gatewayMaker) {
		k, s := encodeAll(newGateway(t, Options{})).keep(t, 32<<20, 32<<20)
		for n := 1; n <= 20; n++ {
			k.coded.Store(0)
			body := turn(1, n, 15_000)
			if prompt(t, s, "key", body); k.coded.Load() > 30_000 {
				t.Errorf("turn %d of %d bytes takes %d", n, len(body), k.coded.Load())
			}
		}
		if k.lost.Load() > 0 || s.hub.Counters().Failed > 0 {
			t.Errorf("%d requests had unknown blocks, %d failed", k.lost.Load(), s.hub.Counters().Failed)
		}
		// Another key sends the same, and gets nothing of it for free.
		body, before := turn(1, 20, 15_000), k.coded.Load()
		prompt(t, s, "other", body)
		if took := k.coded.Load() - before; took < int64(len(body))/10 {
			t.Errorf("another key's prompt of %d bytes takes %d", len(body), took)
		}
	})
}

// A connector that keeps less than it has announced misses blocks, also in requests that run
// in parallel. Each is answered nevertheless.
func TestUnknownBlocks(t *testing.T) {
	overBothReal(t, func(t *testing.T, newGateway gatewayMaker) {
		k, s := encodeAll(newGateway(t, Options{})).keep(t, 32<<20, 150_000)
		var all sync.WaitGroup
		for conversation := range 4 {
			all.Go(func() {
				for n := 1; n <= 8; n++ {
					prompt(t, s, "key", turn(conversation, n, 15_000))
				}
			})
		}
		all.Wait()
		if k.lost.Load() == 0 {
			t.Error("the connector missed no block")
		}
		if c := s.hub.Counters(); c.Requests != 4*8 || c.Failed > 0 {
			t.Errorf("%+v", c)
		}
	})
}

// What a connector does not announce is not used: encoding at all, or blocks. The same is
// true of requests that cannot be repeated, and of small ones.
func TestWhatIsEncoded(t *testing.T) {
	body, none, some := turn(1, 10, 15_000), int64(0), int64(1<<20)
	for name, test := range map[string]struct {
		blocks         *int64
		request        *http.Request
		from           time.Duration
		encoded, known bool
	}{
		"an older connector": {nil, repeatable(body), 0, false, false},
		"without blocks":     {&none, repeatable(body), 0, true, false},
		"with blocks":        {&some, repeatable(body), 0, true, true},
		"not repeatable":     {&some, post(body), 0, true, false},
		"a small one":        {&some, repeatable("x"), 0, false, false},
		"a short line":       {&some, repeatable(body), time.Minute, false, false},
	} {
		g := encodeAll(newGateway(t, Options{}))
		g.encodeFrom = test.from
		k, h := &blockKeeper{store: blocks.NewStore(1 << 20)}, hello("con_1")
		h.Blocks = test.blocks
		if _, err := g.dial(t, listenLoopback(t), h, k); err != nil {
			t.Fatal(err)
		}
		s := g.mustSession(t, "con_1")
		prompt(t, s, "key", body)
		k.encoded.Store(0)
		k.coded.Store(0)
		answer, err := s.Send(test.request, fair.Client{Key: "key"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if encoded, known := k.encoded.Load() > 0, k.coded.Load() < 2000 &&
			test.request.ContentLength > 2000; encoded != test.encoded || known != test.known {
			t.Errorf("%s: encoded %v, known %v", name, encoded, known)
		}
	}
}

// A new tunnel begins with nothing.
func TestBlocksAfterReconnect(t *testing.T) {
	g := encodeAll(newGateway(t, Options{}))
	body := turn(1, 10, 15_000)
	for range 3 {
		k, s := g.keep(t, 1<<20, 1<<20)
		for range 3 {
			prompt(t, s, "key", body)
		}
		if took := k.coded.Load(); k.lost.Load() > 0 || took < int64(len(body))/10 || took > int64(len(body)) {
			t.Errorf("%d unknown blocks, %d bytes", k.lost.Load(), took)
		}
		s.close(link.CloseReplaced)
	}
}

// BenchmarkBodies measures uploads of text and of base64, as JSON, over QUIC. wire-B/op are
// the bytes in the tunnel.
func BenchmarkBodies(b *testing.B) {
	none, some := int64(-1), int64(32<<20)
	zero := int64(0)
	for _, size := range []int{16 << 10, 100 << 10, 1 << 20, 5 << 20} {
		for kind, body := range map[string]string{
			"text":   turn(1, 1, size),
			"base64": `{"image":"` + string(randomBase64(size)) + `"}`,
		} {
			for how, keeps := range map[string]*int64{
				"plain": &none, "compressed": &zero, "new blocks": &some,
				"known blocks": &some,
			} {
				b.Run(fmt.Sprintf("%s/%dKiB/%s", kind, size>>10, how), func(b *testing.B) {
					g := encodeAll(newGateway(b, Options{}))
					k, h := &blockKeeper{store: blocks.NewStore(32 << 20)}, hello("con_1")
					if *keeps >= 0 {
						h.Blocks = keeps
					}
					if _, err := g.dial(b, listenLoopback(b), h, k); err != nil {
						b.Fatal(err)
					}
					s := g.mustSession(b, "con_1")
					b.SetBytes(int64(len(body)))
					for i := 0; b.Loop(); i++ {
						r := repeatable(body)
						r.Header.Set("Discard", "1")
						key := "key"
						if how == "new blocks" {
							key = fmt.Sprint(i)
						}
						answer, err := s.Send(r, fair.Client{Key: key})
						if err != nil {
							b.Fatal(err)
						}
						_ = answer.Body.Close()
					}
					b.ReportMetric(float64(k.coded.Load())/float64(b.N), "wire-B/op")
				})
			}
		}
	}
}

func randomBase64(n int) []byte {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	random, b := rand.New(rand.NewPCG(1, 2)), make([]byte, n)
	for i := range b {
		b[i] = digits[random.IntN(64)]
	}
	return b
}
