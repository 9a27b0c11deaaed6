package store_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func TestBoltConformance(t *testing.T) {
	t.Parallel()
	var paths sync.Map // of the KVs
	open := func(t *testing.T, path string) store.KV {
		kv := storetest.OpenBolt(t, path)
		paths.Store(kv, path)
		return kv
	}
	b := storetest.Backend{
		Open: func(t *testing.T) store.KV { return open(t, filepath.Join(t.TempDir(), "gateway.db")) },
		Reopen: func(t *testing.T, kv store.KV) store.KV {
			must(t, kv.Close())
			path, _ := paths.Load(kv)
			return open(t, path.(string))
		},
	}
	t.Run("kv", func(t *testing.T) { storetest.RunKV(t, b) })
	t.Run("stores", func(t *testing.T) { storetest.RunStores(t, b) })
}
