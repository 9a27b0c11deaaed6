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
	resp, err := try(ctx, k, attemptTime, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return k.client.Grant(ctx, seconds)
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
