package gateway

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/tests/storetest"
)

// A listener outlives configurations, and with it the identity that connectors
// know: a configuration with another store must not create tokens for it.
func TestListenerKeepsItsIdentity(t *testing.T) {
	configuration := func() *Gateway {
		return &Gateway{Configuration: Configuration{Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}}
	}
	open := func(name string) *Services {
		handle := NewStore(StoreConfig{Path: filepath.Join(t.TempDir(), name)}, slog.New(slog.DiscardHandler), Counters{})
		st, err := handle.Get(new(Gateway))
		must(t, err)
		t.Cleanup(func() { _ = handle.Destruct() })
		return st
	}
	first, second := open("first.db"), open("second.db")
	handle := new(Listener)
	t.Cleanup(func() { _ = handle.Destruct() })

	old, next := configuration(), configuration()
	must(t, handle.start(t.Context(), old, first))
	if err := handle.start(t.Context(), configuration(), second); !errors.Is(err, errOtherStorage) {
		t.Errorf("another store: %v, want errOtherStorage", err)
	}
	if err := handle.start(t.Context(), next, first); err != nil {
		t.Errorf("the same store again: %v", err)
	}
	for _, want := range []*Gateway{next, old, nil} {
		if g, _ := handle.configurations.Newest(); g != want {
			t.Errorf("the newest configuration is %p, want %p", g, want)
		}
		handle.configurations.Remove(want)
	}
	if _, deny := (shuttingDown{}).Claim(t.Context(), tunnel.Device{}); deny == nil || !deny.Retry {
		t.Errorf("without a configuration, devices get %+v, not a request to retry", deny)
	}
}

// A tunnel is valid until its secret ends, but not after another device replaced the connector.
func TestValidConnectors(t *testing.T) {
	st := storetest.New(t)
	c, secret, err := st.CreateConnector(t.Context(), store.DefaultAccount, "box")
	must(t, err)
	valid := validIn(st)
	want := func(what string, c tunnel.Connector, want error) {
		t.Helper()
		if _, err := valid(c); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	con, err := authenticateWith(st)(t.Context(), c.ID, secret)
	must(t, err)
	atPeer := con
	atPeer.Secret = [sha256.Size]byte{}
	want("the connector", con, nil)
	want("a replaced one", tunnel.Connector{ID: c.ID, Pairing: "pair_before"}, store.ErrUnauthenticated)
	if _, _, err := st.RotateConnector(t.Context(), store.DefaultAccount, c.ID, time.Hour); err != nil {
		t.Fatal(err)
	}
	if until, err := valid(con); err != nil || time.Until(until).Round(time.Minute) != time.Hour {
		t.Errorf("rotated with grace: until %v, %v", until, err)
	}
	if _, _, err := st.RotateConnector(t.Context(), store.DefaultAccount, c.ID, 0); err != nil {
		t.Fatal(err)
	}
	want("the secret before the previous one", con, tunnel.ErrRotated)
	want("at a peer", atPeer, nil)
	if _, err := st.RemoveConnector(t.Context(), store.DefaultAccount, c.ID); err != nil {
		t.Fatal(err)
	}
	want("removed", atPeer, store.ErrUnauthenticated)
}

// Each gateway of a store has its own key of stateless resets, and keeps it. The key of
// address tokens is shared.
func TestResetKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.db")
	secrets := func(edge string) tunnel.Secrets {
		t.Helper()
		st := storetest.OpenWith(t, path, store.Options{Edge: edge})
		defer st.Close()
		s, err := tunnelSecrets(t.Context(), st)
		must(t, err)
		return s
	}
	alone, a, b := secrets(""), secrets("edge-a"), secrets("edge-b")
	if bytes.Equal(a.Reset, b.Reset) || bytes.Equal(a.Reset, alone.Reset) || len(a.Reset) != 32 {
		t.Errorf("keys of resets: %d bytes, shared", len(a.Reset))
	}
	if !bytes.Equal(a.Reset, secrets("edge-a").Reset) || !bytes.Equal(a.Token, b.Token) ||
		!bytes.Equal(a.Identity, b.Identity) {
		t.Error("a key changes at a restart, or is not shared")
	}
}

// A connector that another edge has just created or rotated is accepted. It is not denied
// permanently while this gateway may have missed the change.
func TestConnectorOfAnotherEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
		other, _ := storetest.OpenEdge(t, kv, store.Options{Edge: "a"})
		st, edge := storetest.OpenEdge(t, kv, store.Options{Edge: "b"})
		authenticate := authenticateWith(st)
		c, secret, err := other.CreateConnector(t.Context(), store.DefaultAccount, "box")
		must(t, err)
		edge.Cut(true)
		if _, err := authenticate(t.Context(), c.ID, secret); !errors.Is(err, tunnel.ErrUnavailable) {
			t.Errorf("unknown, without the store: %v", err)
		}
		edge.Cut(false)
		if _, err := authenticate(t.Context(), c.ID, secret); err != nil {
			t.Errorf("unknown: %v", err)
		}
		_, rotated, err := other.RotateConnector(t.Context(), store.DefaultAccount, c.ID, 0)
		must(t, err)
		if _, err := authenticate(t.Context(), c.ID, rotated); err != nil {
			t.Errorf("a new secret: %v", err)
		}
		if _, err := authenticate(t.Context(), c.ID, secret); !errors.Is(err, tunnel.ErrRotated) {
			t.Errorf("the old secret: %v", err)
		}
		if _, err := authenticate(t.Context(), c.ID, "wrong"); err == nil || errors.Is(err, tunnel.ErrUnavailable) {
			t.Errorf("a wrong secret: %v", err)
		}
		edge.Lose(true)
		for _, secret := range []string{secret, "wrong"} {
			if _, err := authenticate(t.Context(), c.ID, secret); !errors.Is(err, tunnel.ErrUnavailable) {
				t.Errorf("a gateway that has lost its store: %v", err)
			}
		}
	})
}
