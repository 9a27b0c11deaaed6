package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// A copy has the items, their revisions and that of the store. No temporary file remains.
func TestWriteBolt(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "from.db"))
	for i := range 30 { // more than one transaction of the copy
		op := store.Put(fmt.Sprintf("k%02d", i), make([]byte, 700<<10))
		must(t, errOf(kv.Txn(t.Context(), store.Txn{Then: []store.Op{op}})))
	}
	want, err := store.Range(t.Context(), kv, store.Span{})
	must(t, err)
	path := filepath.Join(t.TempDir(), "copy.db")
	file, err := os.Create(path)
	must(t, err)
	must(t, errors.Join(store.WriteBolt(t.Context(), kv, file), file.Close()))
	if got, err := store.Range(t.Context(), storetest.OpenBolt(t, path), store.Span{}); err != nil ||
		!reflect.DeepEqual(got, want) {
		t.Errorf("the copy has revision %d and %d items, the store %d and %d; %v", got.Revision, len(got.Items),
			want.Revision, len(want.Items), err)
	}

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.WriteBolt(canceled, kv, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("a copy that was canceled: %v", err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("temporary files remain: %v, %v", left, err)
	}
}
