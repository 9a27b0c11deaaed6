package agent

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/link/bodies"
)

// Model servers receive the client's body with its length, and no sign of its encoding. Bodies of another tunnel
// are unknown: the request is then sent whole, and a model server sees it once.
func TestEncodedBodies(t *testing.T) {
	g := startGateway(t)
	want, seen := strings.Repeat("a conversation that repeats itself. ", 3000)+"The end.", make(chan struct{}, 10)
	server := serveModel(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != want || r.ContentLength != int64(len(want)) || r.Header.Get(bodies.Field) != "" ||
			len(r.TransferEncoding) > 0 {
			t.Errorf("%d bytes of length %d, %v", len(body), r.ContentLength, r.Header)
		}
		seen <- struct{}{}
	})
	a := startAgent(t, g, server.URL, nil)
	first := g.session()
	kept := bodies.NewCache(func(int64) int64 { return 0 }).NewTunnel(math.MaxInt64)
	encode := func() *bodies.Sent {
		r := post(t.Context(), want)
		r.ContentLength = int64(len(want))
		return bodies.Encode(r, kept, "key")
	}
	for range 3 {
		s := encode()
		_, err := first.roundTrip(s.Request)
		if s.End(err == nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"no encoding":      func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("not encoded")) },
		"an invalid field": func(r *http.Request) { r.Header.Set(bodies.Field, "many") },
		"a shorter length": func(r *http.Request) { r.Header.Set(bodies.Field, `{"length":10}`) },
	} {
		s := bodies.Encode(post(t.Context(), want), nil, "")
		change(s.Request)
		if _, err := first.roundTrip(s.Request); !errors.Is(err, link.ErrInternal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := bodies.Encode(post(t.Context(), want), nil, "")
	long.Header.Set(bodies.Field, `{"length":1099511627776}`)
	if _, err := first.roundTrip(long.Request); !errors.Is(err, link.ErrTooLarge) {
		t.Errorf("a length of 1 TiB: %v", err)
	}

	first.close(link.CloseShutdown)
	second := g.session()
	s, before := encode(), len(seen)
	if _, err := second.roundTrip(s.Request); !errors.Is(err, link.ErrUnknownBody) || !s.Refers() {
		t.Errorf("a body of another tunnel: %v", err)
	}
	if _, err := second.roundTrip(s.Whole().Request); err != nil || len(seen) != before+1 {
		t.Errorf("sent whole: %v, seen %d times", err, len(seen)-before)
	}

	// Another kept_prompts needs another tunnel.
	c := g.present(map[string]string{"box": server.URL})
	c.KeptPrompts = "0"
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	if kept := g.session().hello.KeptPrompts; kept == nil || *kept != 0 {
		t.Errorf("the connector keeps %v", kept)
	}
}
