package gateway

import (
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/memory"
)

// A request may outlive its configuration, and with it the store. It must not
// open the file again: nothing would close it, and the next configuration could not
// open it.
func TestStoreStaysClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.db")
	handle := NewStore(StoreConfig{Path: path}, slog.New(slog.DiscardHandler), Counters{})
	before, err := handle.Get()
	if err != nil {
		t.Fatal(err)
	}
	if err := handle.Destruct(); err != nil {
		t.Fatal(err)
	}

	after, err := handle.Get()
	if err != nil || after != before {
		t.Errorf("after Destruct: %p, %v; want the closed store %p, for its last view", after, err, before)
	}
	if _, ok := after.Store.Account(store.DefaultAccount); !ok {
		t.Error("the closed store has lost its view")
	}
	next := NewStore(StoreConfig{Path: path}, slog.New(slog.DiscardHandler), Counters{})
	if _, err := next.Get(); err != nil {
		t.Fatalf("the next configuration: %v", err)
	}
	if err := next.Destruct(); err != nil {
		t.Fatal(err)
	}
}

func TestStoreNeverOpened(t *testing.T) {
	handle := NewStore(StoreConfig{Path: filepath.Join(t.TempDir(), "gateway.db")}, slog.New(slog.DiscardHandler),
		Counters{})
	if err := handle.Destruct(); err != nil {
		t.Fatal(err)
	}
	if _, err := handle.Get(); !errors.Is(err, errStoreClosed) {
		t.Errorf("get = %v, want errStoreClosed", err)
	}
}

// Without a memory limit, the default of max_memory is half as large.
func TestDefaultMaxMemory(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	without := DefaultMaxMemory()
	debug.SetMemoryLimit(memory.Available()) // which is all memory
	if with := DefaultMaxMemory(); without != max(with/2, MinMaxMemory) {
		t.Errorf("%d bytes without a limit, %d with one", without, with)
	}
}
