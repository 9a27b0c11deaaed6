package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/cluster/etcd"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/harness"
)

// TestCompact drops old revisions. A gateway that was away for longer has all changes when it is
// back.
func TestCompact(t *testing.T) {
	t.Parallel()
	all := start(t, 1)
	p := newProxy(t, all[0])
	openStore := func(url string) *store.Store {
		t.Helper()
		s, err := store.New(open(t, url), store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	here, away := openStore(all[0].url), openStore(p.url)
	create := func(s *store.Store) (store.Key, string) {
		t.Helper()
		k, secret, err := s.CreateKey(t.Context(), store.Key{Account: store.DefaultAccount, Name: rand.Text(), Scope: "*"})
		if err != nil {
			t.Fatal(err)
		}
		return k, secret
	}
	first, secret := create(away)
	live, _ := away.FindKey(secret)
	if err := here.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := here.Revision()
	p.swallow.Store(true)
	if _, err := here.RemoveKey(t.Context(), store.DefaultAccount, first.ID); err != nil {
		t.Fatal(err)
	}
	_, secret = create(here)
	now := here.Revision()

	kv := open(t, all[0].url).(store.Compacter)
	leaves, err := etcd.Open(t.Context(), etcd.Options{Endpoints: all.urls(), NoCompact: true})
	if err != nil {
		t.Fatal(err)
	}
	defer leaves.Close()
	read := func(revision int64) error {
		_, err := all.client(t).Get(t.Context(), "postern/", clientv3.WithPrefix(), clientv3.WithRev(revision))
		return err
	}
	if err := errors.Join(leaves.(store.Compacter).Compact(t.Context(), now), read(old)); err != nil {
		t.Errorf("with the option NoCompact: %v", err)
	}
	for range 2 { // also if another gateway was faster
		if err := kv.Compact(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	if err := read(old); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("reading an old revision: %v", err)
	}
	if err := read(now); err != nil {
		t.Errorf("reading the revision compacted to: %v", err)
	}
	p.swallow.Store(false)
	p.cut()
	harness.Poll(t, patience, "the changes at the store that was away", func(context.Context) error {
		if _, ok := away.FindKey(secret); !ok || !live.Revoked() {
			return errors.New("they are missing")
		}
		return nil
	})
}
