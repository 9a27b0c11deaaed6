package storetest

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/postern-dev/postern/caddymodule/store"
)

// patience bounds waits for events that must happen, even on a slow machine.
const patience = time.Minute

// New returns a store in a new file. When the test ends, the store is closed unless
// the test has closed it, and the file is checked.
func New(t testing.TB) *store.Store {
	t.Helper()
	return Open(t, filepath.Join(t.TempDir(), "gateway.db"))
}

// Open is New for the file at path, which need not exist.
func Open(t testing.TB, path string) *store.Store {
	t.Helper()
	return OpenWith(t, path, store.Options{})
}

// OpenWith is Open with options, such as a clock.
func OpenWith(t testing.TB, path string, o store.Options) *store.Store {
	t.Helper()
	s, err := store.New(OpenBolt(t, path), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAny(t, s) })
	return s
}

// OpenBolt opens a KV in a file, with the same clean-up as New.
func OpenBolt(t testing.TB, path string) store.KV {
	t.Helper()
	kv, err := store.OpenBolt(path, store.BoltOptions{LockTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeAny(t, kv)
		CheckFile(t, path)
	})
	return kv
}

func closeAny(t testing.TB, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
		t.Errorf("closing the store: %v", err)
	}
}

// CheckFile runs bbolt's consistency check over the file of a closed store.
func CheckFile(t testing.TB, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: patience, PreLoadFreelist: true})
	if err != nil {
		t.Errorf("opening %s to check it: %v", path, err)
		return
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("checking %s: %v", path, err)
		}
		return nil
	})
	if err != nil {
		t.Errorf("checking %s: %v", path, err)
	}
}
