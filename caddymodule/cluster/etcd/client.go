package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
)

// Connect opens the store as Open does, and returns the client. Its keys are below the prefix.
func (o Options) Connect(ctx context.Context) (*clientv3.Client, error) {
	opened, err := Open(ctx, o)
	if err != nil {
		return nil, err
	}
	k := opened.(*kv)
	k.client.KV = namespace.NewKV(k.client.KV, k.prefix)
	k.client.Lease = namespace.NewLease(k.client.Lease, k.prefix)
	k.client.Watcher = namespace.NewWatcher(k.client.Watcher, k.prefix)
	return k.client, nil
}
