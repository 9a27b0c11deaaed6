package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Lease implements store.Leaser. It rounds ttl up to seconds. If etcd does not answer an attempt, another lease
// without keys may exist until its ttl ends.
func (k *kv) Lease(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	if ttl <= 0 {
		return nil, store.Errorf(store.ErrInvalid, "a lease needs a positive duration, not %v", ttl)
	}
	seconds := int64((ttl + time.Second - 1) / time.Second)
	l := &lease{k: k}
	err := k.try(ctx, attemptTime, func(ctx context.Context) error {
		resp, err := k.client.Grant(ctx, seconds)
		if err == nil {
			l.id = resp.ID
		}
		return err
	})
	if err != nil {
		return nil, k.explain(err)
	}
	return l, nil
}

type lease struct {
	k  *kv
	id clientv3.LeaseID
}

func (l *lease) ID() store.LeaseID { return store.LeaseID(l.id) }

func (l *lease) KeepAlive(ctx context.Context) error {
	return l.k.explain(l.k.try(ctx, attemptTime, func(ctx context.Context) error {
		_, err := l.k.client.KeepAliveOnce(ctx, l.id)
		return err
	}))
}

func (l *lease) Revoke(ctx context.Context) error {
	err := l.k.try(ctx, attemptTime, func(ctx context.Context) error {
		_, err := l.k.client.Revoke(ctx, l.id)
		return err
	})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return l.k.explain(err)
}
