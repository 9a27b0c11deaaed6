package gateway

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// The hub has a new identity when the write returns, and after a start and a reload.
func TestReplaceIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.db")
	configuration := &Gateway{Configuration: Configuration{Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}}
	var listener *Listener
	var s *Services
	start := func() (stop func()) {
		handle := NewStore(StoreConfig{Path: path}, slog.New(slog.DiscardHandler), Counters{})
		var err error
		if s, err = handle.Get(new(Gateway)); err != nil {
			t.Fatal(err)
		}
		listener = new(Listener)
		configuration.Listener = listener
		unsubscribe := s.Store.Subscribe(func(c store.Change) { configuration.onChange(s.Store, c) })
		must(t, listener.start(t.Context(), configuration, s))
		return func() {
			unsubscribe()
			_ = listener.Destruct()
			_ = handle.Destruct()
		}
	}
	stop := start()
	first := listener.hub.Load().Pin()
	key, err := link.NewIdentity()
	must(t, err)
	_, second, err := link.Identity(key)
	must(t, err)
	must(t, s.Store.ReplaceIdentity(t.Context(), key))
	if pin := listener.hub.Load().Pin(); pin != second || pin == first {
		t.Errorf("after the write: pin %s, want %s", pin, second)
	}
	if err := listener.start(t.Context(), configuration, s); err != nil || listener.hub.Load().Pin() != second {
		t.Errorf("after a reload: %v, pin %s", err, listener.hub.Load().Pin())
	}
	stop()
	stop = start()
	if pin := listener.hub.Load().Pin(); pin != second {
		t.Errorf("after a start: pin %s, want %s", pin, second)
	}
	stop()
}
