package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func TestKV(t *testing.T) {
	t.Parallel()
	storetest.RunKV(t, backend(func(_ *testing.T, s *server) string { return s.url }))
}

// TestKVThroughTrouble runs the same tests with connections that break all the time.
func TestKVThroughTrouble(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow")
	}
	storetest.RunKV(t, backend(func(t *testing.T, s *server) string {
		p := newProxy(t, s)
		p.trouble(t)
		return p.url
	}))
}

// backend starts an etcd for each test. The client uses the URL that reach returns.
func backend(reach func(*testing.T, *server) string) storetest.Backend {
	type running struct {
		*server
		url string // URL for the client
	}
	var all sync.Map // store.KV to running
	return storetest.Backend{
		Open: func(t *testing.T) store.KV {
			s := start(t, 1)[0]
			r := running{s, reach(t, s)}
			kv := open(t, r.url)
			all.Store(kv, r)
			return kv
		},
		Reopen: func(t *testing.T, kv store.KV) store.KV {
			value, _ := all.Load(kv)
			r := value.(running)
			if err := kv.Close(); err != nil {
				t.Error(err)
			}
			r.Kill()
			r.start(t)
			servers{r.server}.wait(t)
			kv = open(t, r.url)
			all.Store(kv, r)
			return kv
		},
		TTL:      5 * time.Second,
		External: true,
	}
}
