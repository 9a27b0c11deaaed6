package cluster

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/cluster/etcd"
	"github.com/postern-dev/postern/caddymodule/store"
)

// TestCompact: several gateways compact old revisions. TestWatchCompacted covers their watchers.
func TestCompact(t *testing.T) {
	t.Parallel()
	all := start(t, 1)
	kv := open(t, all[0].url)
	leaves, err := etcd.Open(t.Context(), etcd.Options{Endpoints: all.urls(), NoCompact: true})
	must(t, err)
	defer leaves.Close()
	old, now := put(t, kv, store.Put("a", nil)), put(t, kv, store.Put("a", nil))
	admin := all.client(t)
	read := func(revision int64) error {
		_, err := admin.Get(t.Context(), "postern/", clientv3.WithPrefix(), clientv3.WithRev(revision))
		return err
	}
	if err := errors.Join(leaves.(store.Compacter).Compact(t.Context(), now), read(old)); err != nil {
		t.Errorf("with the option NoCompact: %v", err)
	}
	for range 2 { // even if another gateway was faster
		must(t, kv.(store.Compacter).Compact(t.Context(), now))
	}
	if err := read(old); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("reading an old revision: %v", err)
	}
	if err := read(now); err != nil {
		t.Errorf("reading the revision compacted to: %v", err)
	}
}
