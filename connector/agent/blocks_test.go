package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/link/blocks"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// encoded returns a request with an encoded body, as the gateway sends it.
func encoded(ctx context.Context, body string, o blocks.Options) (*http.Request, *blocks.Encoder) {
	r := post(ctx, "")
	e := blocks.NewEncoder(io.NopCloser(strings.NewReader(body)), int64(len(body)), o)
	r.Body, r.ContentLength = e, -1
	r.Header.Set(blocks.Field, strconv.Itoa(len(body)))
	return r, e
}

// Model servers receive the client's body with its length, and no sign of its encoding. Blocks
// of another tunnel are unknown.
func TestEncodedBodies(t *testing.T) {
	g := startGateway(t)
	want := strings.Repeat("a conversation that repeats itself. ", 3000) + "The end."
	server := serveModel(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != want || r.ContentLength != int64(len(want)) || r.Header.Get(blocks.Field) != "" ||
			len(r.TransferEncoding) > 0 {
			t.Errorf("%d bytes of length %d, %v", len(body), r.ContentLength, r.Header)
		}
	})
	a := startAgent(t, g, server.URL, nil)
	first := g.session()
	o := blocks.Options{Known: blocks.NewKnown(blocks.NewQuota(1000), *first.hello.Blocks)}
	for range 3 {
		r, e := encoded(t.Context(), want, o)
		if _, err := first.roundTrip(r); err != nil {
			t.Fatal(err)
		}
		e.Received()
	}
	for name, change := range map[string]func(*http.Request){
		"no encoding":      func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("not encoded")) },
		"an invalid field": func(r *http.Request) { r.Header.Set(blocks.Field, "many") },
		"a shorter length": func(r *http.Request) { r.Header.Set(blocks.Field, "10") },
	} {
		r, _ := encoded(t.Context(), want, o)
		change(r)
		if _, err := first.roundTrip(r); !errors.Is(err, link.ErrInternal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, _ := encoded(t.Context(), want, o)
	r.Header.Set(blocks.Field, strconv.Itoa(1<<40))
	if _, err := first.roundTrip(r); !errors.Is(err, link.ErrTooLarge) {
		t.Errorf("a length of 1 TiB: %v", err)
	}

	first.close(link.CloseShutdown)
	second := g.session()
	r, _ = encoded(t.Context(), want, o)
	if _, err := second.roundTrip(r); !errors.Is(err, link.ErrUnknownBlock) {
		t.Errorf("a block of another tunnel: %v", err)
	}
	o.Whole = true
	r, _ = encoded(t.Context(), want, o)
	if _, err := second.roundTrip(r); err != nil {
		t.Error(err)
	}

	// Another kept_prompts needs another tunnel.
	c := g.present(map[string]string{"box": server.URL})
	c.KeptPrompts = "0"
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	wait.For(t, second.got, "the drain")
	if err := second.control.Send(link.DrainOK{}); err != nil {
		t.Fatal(err)
	}
	if kept := g.session().hello.Blocks; kept == nil || *kept != 0 {
		t.Errorf("the connector keeps %v", kept)
	}
}
