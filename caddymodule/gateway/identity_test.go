package gateway

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// pinOf returns the pin of a key.
func pinOf(t *testing.T, key []byte) string {
	t.Helper()
	_, pin, err := link.Identity(key)
	if err != nil {
		t.Fatal(err)
	}
	return pin
}

// The gateway switches to the next key when it is due: while it runs, and at a start.
func TestIdentitySwitch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.db")
	configuration := &Gateway{Configuration: Configuration{Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}}
	var listener *Listener
	var s *Services
	start := func() func() {
		handle := NewStore(StoreConfig{Path: path}, slog.New(slog.DiscardHandler), Counters{})
		var err error
		if s, err = handle.Get(); err != nil {
			t.Fatal(err)
		}
		listener = new(Listener)
		if err := listener.start(t.Context(), configuration, s); err != nil {
			t.Fatal(err)
		}
		return func() {
			_ = listener.Destruct()
			_ = handle.Destruct()
		}
	}
	next := func(in time.Duration) (pin string) {
		key, err := link.NewIdentity()
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Store.ChangeIdentity(t.Context(), func(i *store.Identity) error {
			i.Next, i.SwitchAt = key, time.Now().Add(in)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return pinOf(t, key)
	}
	stop := start()
	first := listener.hub.Load().Pin()
	second := next(time.Hour)
	apply := func() {
		t.Helper()
		if err := listener.applyIdentity(t.Context(), s.Store); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	if hub := listener.hub.Load(); hub.Pin() != first || hub.NextPin() != second {
		t.Errorf("before the switch: pins %s, %s", hub.Pin(), hub.NextPin())
	}
	// It is due in a moment, or already if this machine is slow.
	_, err := s.Store.ChangeIdentity(t.Context(), func(i *store.Identity) error {
		i.SwitchAt = time.Now().Add(300 * time.Millisecond)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	apply()
	wait.Until(t, "the switch", func() bool { return listener.hub.Load().Pin() == second })
	stored, err := s.Store.Identity(t.Context(), nil)
	if err != nil || pinOf(t, stored.Key) != second || stored.Former != first || stored.Next != nil ||
		!stored.SwitchAt.IsZero() {
		t.Errorf("stored: %+v, %v", stored, err)
	}

	third := next(-time.Minute) // due, while the gateway is down
	stop()
	stop = start()
	if hub := listener.hub.Load(); hub.Pin() != third || hub.NextPin() != "" {
		t.Errorf("after the start: pins %s, %q", hub.Pin(), hub.NextPin())
	}
	// A reload while a key is due.
	fourth := next(-time.Minute)
	if err := listener.start(t.Context(), configuration, s); err != nil || listener.hub.Load().Pin() != fourth {
		t.Errorf("after a reload: %v, pin %s", err, listener.hub.Load().Pin())
	}
	stop()
}

// An early switch keeps the pending key for later; a canceled one leaves the present key.
func TestIdentityIsNotDue(t *testing.T) {
	st := storetest.New(t)
	before, err := currentIdentity(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.ChangeIdentity(t.Context(), func(i *store.Identity) error {
		i.Next, i.SwitchAt = i.Key, time.Now().Add(time.Hour)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	now, err := currentIdentity(t.Context(), st)
	if err != nil || string(now.Key) != string(before.Key) || len(now.Next) == 0 {
		t.Errorf("%+v, %v", now, err)
	}
}
