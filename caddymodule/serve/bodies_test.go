package serve

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link/bodies"
)

// The gateway keeps no prompt of a key that was revoked, and none if requests need the memory.
func TestKeptPrompts(t *testing.T) {
	g := newGateway(t, 8<<20)
	tunnel, id := g.backend.Bodies.NewTunnel(1<<30), g.key.ID()
	prompt := strings.Repeat("a long prompt. ", 2000)
	known := func() bool {
		body := io.NopCloser(strings.NewReader(prompt))
		r := &http.Request{Header: http.Header{}, Body: body, ContentLength: int64(len(prompt))}
		sent := bodies.Encode(r, tunnel, id)
		sent.End(true)
		return sent.Refers()
	}
	if known() || !known() {
		t.Error("the prompt was not kept")
	}
	all := g.backend.Memory.Open("", "", "")
	if err := all.Set(8 << 20); err != nil {
		t.Fatal(err)
	}
	all.Release()
	if known() || !known() {
		t.Error("the prompt was kept although a request needed the memory, or not kept afterwards")
	}
	if _, err := g.backend.Store.RevokeKey(t.Context(), store.DefaultAccount, id); err != nil {
		t.Fatal(err)
	}
	if known() {
		t.Error("the prompt of a revoked key was kept")
	}
}
