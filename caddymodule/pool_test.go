package caddymodule

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
)

// A request may outlive its configuration, and with it the store. It must not
// open the file again: nobody would close it, and the next configuration that
// wants it would be refused.
func TestStoreStaysClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.db")
	handle := newStoreHandle(path, slog.New(slog.DiscardHandler))
	before, err := handle.get()
	if err != nil {
		t.Fatal(err)
	}
	if err := handle.Destruct(); err != nil {
		t.Fatal(err)
	}

	after, err := handle.get()
	if err != nil || after != before {
		t.Errorf("after Destruct: %p, %v; want the closed store %p, for its last view", after, err, before)
	}
	if _, ok := after.store.Account(store.DefaultAccount); !ok {
		t.Error("the closed store has lost its view")
	}
	next := newStoreHandle(path, slog.New(slog.DiscardHandler))
	if _, err := next.get(); err != nil {
		t.Fatalf("the next configuration: %v", err)
	}
	if err := next.Destruct(); err != nil {
		t.Fatal(err)
	}
}

func TestStoreNeverOpened(t *testing.T) {
	handle := newStoreHandle(filepath.Join(t.TempDir(), "gateway.db"), slog.New(slog.DiscardHandler))
	if err := handle.Destruct(); err != nil {
		t.Fatal(err)
	}
	if _, err := handle.get(); !errors.Is(err, errStoreClosed) {
		t.Errorf("get = %v, want errStoreClosed", err)
	}
}
