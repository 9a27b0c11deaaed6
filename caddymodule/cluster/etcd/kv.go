package etcd

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/store"
)

// pageItems is the number of items that Each reads at a time. For each page, etcd counts all items that follow, so
// pages must not be small: a million items take 118 s in pages of 1,000.
const pageItems = 20_000

// Get implements [store.KV].
func (k *kv) Get(ctx context.Context, key string) (store.Item, error) {
	if err := store.CheckKey(key); err != nil {
		return store.Item{}, err
	}
	resp, err := k.get(ctx, attemptTime, key)
	if err != nil {
		return store.Item{}, k.explain(err)
	}
	_ = k.see(0, resp.Header.Revision)
	if len(resp.Kvs) == 0 {
		return store.Item{Key: key}, nil
	}
	return k.item(resp.Kvs[0]), nil
}

func (k *kv) get(
	ctx context.Context, limit time.Duration, key string, o ...clientv3.OpOption,
) (*clientv3.GetResponse, error) {
	return try(ctx, k, limit, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return k.client.Get(ctx, k.prefix+key, o...)
	})
}

// revision returns the revision of etcd, as of now.
func (k *kv) revision(ctx context.Context) (int64, error) {
	seen := k.seen.Load()
	resp, err := k.get(ctx, attemptTime, schemaKey, clientv3.WithCountOnly())
	if err != nil {
		return 0, k.explain(err)
	}
	return resp.Header.Revision, k.see(seen, resp.Header.Revision)
}

// see records a revision of etcd. before is the latest known revision when the call of etcd began. If the
// new revision is older than that, etcd was restored, and watchers may miss changes. All calls fail from
// then on, as later revisions would not show it.
func (k *kv) see(before, revision int64) error {
	for seen := k.seen.Load(); seen < revision && !k.seen.CompareAndSwap(seen, revision); {
		seen = k.seen.Load()
	}
	if revision < before {
		err := store.Errorf(store.ErrUnavailable, "etcd at %s has revision %d, but had %d before: "+
			"it was restored, so restart this gateway", k.servers, revision, before)
		k.restored.CompareAndSwap(nil, &err)
	}
	if err := k.restored.Load(); err != nil {
		return *err
	}
	return nil
}

// Each implements [store.KV].
func (k *kv) Each(ctx context.Context, span store.Span, f func(store.Item) error) (revision int64, err error) {
	for {
		resp, err := k.get(ctx, pageTime, span.Start, clientv3.WithRange(k.end(span)), clientv3.WithLimit(pageItems),
			clientv3.WithRev(revision))
		switch {
		case errors.Is(err, rpctypes.ErrCompacted):
			return 0, store.Errorf(store.ErrCompacted, "reading the store from etcd at %s took longer than etcd keeps old "+
				"revisions: try again, or compact it less often", k.servers)
		case err != nil:
			return 0, k.explain(err)
		case revision == 0:
			revision = resp.Header.Revision
			_ = k.see(0, revision)
		}
		for _, kv := range resp.Kvs {
			item := k.item(kv)
			span.Start = item.Key + "\x00"
			if strings.HasPrefix(item.Key, hidden) {
				continue
			}
			if err := f(item); err != nil {
				return 0, err
			}
		}
		if !resp.More {
			return revision, nil
		}
	}
}

// Backup writes the items without their leases, which do not exist in another store.
func (k *kv) Backup(ctx context.Context, w io.Writer) error { return store.WriteBolt(ctx, k, w) }

// end returns the end of a span in etcd.
func (k *kv) end(span store.Span) string {
	if span.End == "" {
		return clientv3.GetPrefixRangeEnd(k.prefix)
	}
	return k.prefix + span.End
}

// item returns the item of a key of etcd.
func (k *kv) item(kv *mvccpb.KeyValue) store.Item {
	key, value := strings.TrimPrefix(string(kv.Key), k.prefix), kv.Value
	if value == nil {
		value = []byte{}
	}
	return store.Item{Key: key, Value: value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision}
}

// Lease implements [store.Leaser]. It rounds ttl up to seconds. If etcd does not answer an attempt, another lease
// without keys may exist until its ttl ends.
func (k *kv) Lease(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	if ttl <= 0 {
		return nil, store.Errorf(store.ErrInvalid, "a lease needs a positive duration, not %v", ttl)
	}
	resp, err := try(ctx, k, attemptTime, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return k.client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	})
	if err != nil {
		return nil, k.explain(err)
	}
	return &lease{k, resp.ID}, nil
}

type lease struct {
	k  *kv
	id clientv3.LeaseID
}

func (l *lease) ID() store.LeaseID { return store.LeaseID(l.id) }

func (l *lease) KeepAlive(ctx context.Context) error {
	_, err := try(ctx, l.k, attemptTime, func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
		return l.k.client.KeepAliveOnce(ctx, l.id)
	})
	return l.k.explain(err)
}

func (l *lease) Revoke(ctx context.Context) error {
	_, err := try(ctx, l.k, attemptTime, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return l.k.client.Revoke(ctx, l.id)
	})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return l.k.explain(err)
}
