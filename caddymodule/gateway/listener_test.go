package gateway

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/tests/storetest"
)

// A listener outlives configurations, and with it the identity that connectors
// know: a configuration with another store must not make tokens for it.
func TestListenerKeepsItsIdentity(t *testing.T) {
	configuration := func() *Gateway {
		return &Gateway{Configuration: Configuration{Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}}
	}
	open := func(name string) *Services {
		handle := NewStore(filepath.Join(t.TempDir(), name), slog.New(slog.DiscardHandler), Counters{})
		st, err := handle.Get()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = handle.Destruct() })
		return st
	}
	first, second := open("first.db"), open("second.db")
	handle := new(Listener)
	t.Cleanup(func() { _ = handle.Destruct() })

	if err := handle.start(t.Context(), configuration(), first); err != nil {
		t.Fatal(err)
	}
	if err := handle.start(t.Context(), configuration(), second); !errors.Is(err, errOtherStorage) {
		t.Errorf("another store: %v, want errOtherStorage", err)
	}
	if err := handle.start(t.Context(), configuration(), first); err != nil {
		t.Errorf("the same store again: %v", err)
	}
	if n := handle.configurations.Len(); n != 2 {
		t.Errorf("%d configurations own the listener, want 2", n)
	}
	if _, deny := (notNow{}).Claim(t.Context(), tunnel.Device{}); deny == nil || !deny.Retry {
		t.Errorf("without a configuration devices get %+v, want to come back", deny)
	}
}

// A connector stays known with a new secret, but not in the place of another.
func TestKnownConnectors(t *testing.T) {
	st := storetest.New(t)
	c, _, err := st.CreateConnector(t.Context(), store.DefaultAccount, "box")
	if err != nil {
		t.Fatal(err)
	}
	known := knownTo(st)
	if !known(tunnelConnector(c)) || known(tunnel.Connector{ID: c.ID, Pairing: "pair_before"}) {
		t.Error("a connector is not known, or one that had its place is")
	}
	_, secret, err := st.ShowSecret(t.Context(), store.DefaultAccount, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, done, err := st.FinishRotation(t.Context(), c.ID, secret); !done || err != nil {
		t.Fatal(done, err)
	}
	if !known(tunnelConnector(c)) {
		t.Error("a connector that was rotated is not known")
	}
	if _, err := st.RemoveConnector(t.Context(), store.DefaultAccount, c.ID); err != nil {
		t.Fatal(err)
	}
	if known(tunnelConnector(c)) {
		t.Error("a connector that was removed is known")
	}
}
