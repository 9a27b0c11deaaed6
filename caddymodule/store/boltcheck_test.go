package store_test

import (
	"bytes"
	"fmt"
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
	must(t, err)
	store.NoSync(kv)
	for i := range 60 {
		var ops []store.Op
		for k := range 50 {
			ops = append(ops, store.Put(fmt.Sprintf("robots/%d/%d", k, i), bytes.Repeat([]byte{'v'}, 300)))
		}
		must(t, errOf(kv.Txn(t.Context(), store.Txn{Then: ops})))
	}
	must(t, kv.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

func damagedStore(t *testing.T, data []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "gateway.db")
	must(t, os.WriteFile(path, data, 0o600))
	return path
}

// wantDamaged opens a file. It must fail with a remedy, and not change the file.
func wantDamaged(t *testing.T, path string) {
	t.Helper()
	before, err := os.ReadFile(path)
	must(t, err)
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
		wantDamaged(t, damagedStore(t, data[:size]))
	}
}

// A damaged page that has records does not end the process: the store does not open.
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
		s, err := openStore(damagedStore(t, damaged))
		if err != nil {
			wantError(t, err, store.ErrSchema, "restore a backup")
			refused++
			continue
		}
		if err := s.Close(); err != nil { // a free page
			t.Error(err)
		}
	}
	if tried := len(data) / page / stride; refused < tried/4 {
		t.Errorf("refused %d of %d damaged pages", refused, tried)
	}
}

// An empty file may have been a store.
func TestBoltBlank(t *testing.T) {
	t.Parallel()
	path := damagedStore(t, nil)
	wantDamaged(t, path)
	must(t, os.Remove(path))
	storetest.OpenBolt(t, path)
}
