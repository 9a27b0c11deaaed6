package link

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/tests/rig/caught"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// crashing panics after some bytes.
type crashing struct{ io.Reader }

func (c crashing) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err != nil {
		panic(caught.Secret)
	}
	return n, nil
}

func (crashing) Close() error { return nil }

// A panic of the body, which another goroutine may read, is that of the one that sends the request.
// The other end learns that the request is broken.
func TestPanicOfUpload(t *testing.T) {
	for name, size := range map[string]int{"at once": 100, "by another goroutine": 10 * largeChunk} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }))
			r := post("{}")
			r.Body, r.ContentLength = crashing{strings.NewReader(strings.Repeat("x", size-1))}, int64(size)
			stream, err := p.gateway.OpenStreamSync(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			passed := func() (passed *panics.Error) {
				defer func() { passed = panics.Caught(recover()) }()
				_, err := RoundTrip(t.Context(), stream, r, func() { close(done) })
				t.Errorf("the request has ended with %v", err)
				return nil
			}()
			if passed == nil || strings.Contains(passed.Error(), caught.Secret) {
				t.Errorf("the panic is %v", passed)
			}
			wait.For(t, done, "the end of the request")
			if err := wait.For(t, p.served, "the other end"); err == nil && name != "at once" {
				t.Error("the other end got a whole request")
			}
		})
	}
}
