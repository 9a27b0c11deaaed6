package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// backupOf writes a backup of a KV with the records of a gateway, more than fit into one
// transaction, and those of a cluster.
func backupOf(t *testing.T, kv store.KV) (path string) {
	t.Helper()
	var ops []store.Op
	for i := range 4 {
		ops = append(ops, store.Put(fmt.Sprintf("secrets/%02d", i), bytes.Repeat([]byte{'x'}, 500<<10)))
	}
	for i := range 200 {
		ops = append(ops, store.Put(fmt.Sprintf("secrets/small%03d", i), nil))
	}
	for _, key := range []string{"edges/a", "edge_reports/a", "marks/confirmed"} {
		ops = append(ops, store.Put(key, []byte(`{"v":1,"name":"a"}`)))
	}
	for chunk := range slices.Chunk(ops, 2) {
		must(t, errOf(kv.Txn(t.Context(), store.Txn{Then: chunk})))
	}
	path = filepath.Join(t.TempDir(), "backup.db")
	file, err := os.Create(path)
	must(t, err)
	must(t, errors.Join(kv.Backup(t.Context(), file), file.Close()))
	return path
}

// records returns the items of a KV as text.
func records(t *testing.T, kv store.KV) (all []string) {
	t.Helper()
	_, err := kv.Each(t.Context(), store.Span{}, func(item store.Item) error {
		all = append(all, item.Key+" "+string(item.Value))
		return nil
	})
	must(t, err)
	return all
}

// dying fails all transactions after a number of them.
type dying struct {
	store.KV
	left int
}

func (d *dying) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if d.left--; d.left < 0 {
		return store.TxnResult{}, store.ErrUnavailable
	}
	return d.KV.Txn(ctx, t)
}

// A restore that is interrupted leaves a store that does not open, until it is repeated.
func TestRestoreKV(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	from := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "from.db"))
	s, err := store.New(from, store.Options{})
	must(t, err)
	defer s.Close()
	must(t, errOf(s.CreateKey(ctx, account, store.KeyFields{Name: "laptop", Scope: "*"})))
	backup := backupOf(t, from)
	var want []string
	for _, r := range records(t, from) {
		if !strings.HasPrefix(r, "edge") && !strings.HasPrefix(r, "marks/confirmed") {
			want = append(want, r)
		}
	}

	to := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "to.db"))
	for left := 1; left < 5; left++ {
		if _, err := store.RestoreKV(ctx, backup, &dying{to, left}); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("without answers after %d: %v", left, err)
		}
		if _, err := store.New(to, store.Options{}); !errors.Is(err, store.ErrSchema) {
			t.Errorf("opened after an interruption: %v", err)
		}
	}
	if info, err := store.RestoreKV(ctx, backup, to); err != nil || info.Accounts != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
	if got := records(t, to); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
	if _, err := store.RestoreKV(ctx, backup, to); !errors.Is(err, store.ErrExists) {
		t.Errorf("into a store with records: %v", err)
	}
	restored, err := store.New(to, store.Options{})
	must(t, err)
	defer restored.Close()
	if keys := restored.Keys(account); len(keys) != 1 || keys[0].Name != "laptop" {
		t.Errorf("keys: %v", keys)
	}
}

// CheckUnused fails for a store whose gateways run.
func TestCheckUnused(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	if err := store.CheckUnused(t.Context(), kv); err != nil {
		t.Error(err)
	}
	must(t, errOf(kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("edge_reports/edge-a", nil)}})))
	if err := store.CheckUnused(t.Context(), kv); !errors.Is(err, store.ErrLocked) ||
		!strings.Contains(err.Error(), `"edge-a"`) {
		t.Errorf("while a gateway runs: %v", err)
	}
}
