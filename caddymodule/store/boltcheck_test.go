package store_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// boltBytes returns a store of several hundred pages, closed.
func boltBytes(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.db")
	kv, err := store.OpenBolt(path, store.BoltOptions{})
	if err != nil {
		t.Fatal(err)
	}
	store.NoSync(kv)
	for i := range 60 {
		var ops []store.Op
		for k := range 50 {
			ops = append(ops, store.Put(fmt.Sprintf("keys/%d/%d", k, i), bytes.Repeat([]byte{'v'}, 300)))
		}
		if _, err := kv.Txn(t.Context(), store.Txn{Then: ops}); err != nil {
			t.Fatal(err)
		}
	}
	if err := kv.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// damagedStore writes a file that a process has closed, or has not.
func damagedStore(t *testing.T, data []byte, closed bool) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "gateway.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if !closed {
		if err := os.WriteFile(path+".owner", []byte(`{"pid":1}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// wantDamaged opens a file. It must fail with a remedy, and not change the file.
func wantDamaged(t *testing.T, path string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := store.OpenBolt(path, store.BoltOptions{})
	if err == nil {
		kv.Close()
	}
	switch {
	case err == nil:
		t.Errorf("%d bytes are a store", len(before))
	case !strings.Contains(err.Error(), "restore a backup"), !strings.Contains(err.Error(), path),
		strings.Contains(err.Error(), "runtime error"):
		t.Errorf("%d bytes: error %v", len(before), err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file of %d bytes has changed, %v", len(before), err)
	}
}

func TestBoltTruncated(t *testing.T) {
	t.Parallel()
	data := boltBytes(t)
	for _, size := range []int{1, 4 << 10, 8 << 10, 16 << 10, 64 << 10, len(data) / 2} {
		for _, closed := range []bool{true, false} {
			wantDamaged(t, damagedStore(t, data[:size], closed))
		}
	}
}

// A store that was not closed is checked, so that a damaged page does not end the process.
func TestBoltDamagedPage(t *testing.T) {
	t.Parallel()
	data := boltBytes(t)
	page := os.Getpagesize()
	const stride = 9 // of pages; all of them take a minute
	refused := 0
	for at := 2 * page; at+page <= len(data); at += stride * page {
		damaged := bytes.Clone(data)
		for i := range 64 { // its header and first elements
			damaged[at+i] ^= 0xff
		}
		kv, err := store.OpenBolt(damagedStore(t, damaged, false), store.BoltOptions{})
		if err != nil {
			wantError(t, err, store.ErrSchema, "restore a backup")
			refused++
			continue
		}
		if err := kv.Close(); err != nil { // a free page
			t.Error(err)
		}
	}
	if tried := len(data) / page / stride; refused < tried/4 {
		t.Errorf("refused %d of %d damaged pages", refused, tried)
	}
}

// An empty file is a new store only if no other file of a store is present.
func TestBoltBlank(t *testing.T) {
	t.Parallel()
	wantDamaged(t, damagedStore(t, nil, false))
	path := damagedStore(t, nil, true)
	kept := path + ".before-restore-20260502T120000.000"
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantDamaged(t, path)
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	storetest.OpenBolt(t, path)
}

// The owner file is only for messages: on a full disk the store opens without it.
func TestBoltWithoutOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	if err := os.Mkdir(path+".owner.new", 0o700); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	kv, err := store.OpenBolt(path, store.BoltOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer kv.Close()
	if !strings.Contains(log.String(), "failed to write the owner file") {
		t.Errorf("the log: %s", log.String())
	}
}
