package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// A copy has the items, their revisions and that of the store.
func TestCopyToBolt(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "from.db"))
	for i := range 30 { // more than is written at a time
		op := store.Put(fmt.Sprintf("k%02d", i), make([]byte, 700<<10))
		if _, err := kv.Txn(t.Context(), store.Txn{Then: []store.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
	want, err := store.Range(t.Context(), kv, store.Span{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	if err := store.CopyToBolt(t.Context(), kv, path); err != nil {
		t.Fatal(err)
	}
	if got, err := store.Range(t.Context(), storetest.OpenBolt(t, path), store.Span{}); err != nil ||
		!reflect.DeepEqual(got, want) {
		t.Errorf("the copy has revision %d and %d items, the store %d and %d; %v", got.Revision, len(got.Items),
			want.Revision, len(want.Items), err)
	}
	if err := store.CopyToBolt(t.Context(), kv, path); !errors.Is(err, os.ErrExist) {
		t.Errorf("copying over a file: %v", err)
	}

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	unfinished := filepath.Join(t.TempDir(), "unfinished.db")
	if err := store.CopyToBolt(canceled, kv, unfinished); !errors.Is(err, context.Canceled) {
		t.Errorf("a copy that was canceled: %v", err)
	}
	if _, err := os.Stat(unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it left a file: %v", err)
	}
}
