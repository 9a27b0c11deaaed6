package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/store"
)

// errEpoch means that an attempt has changed nothing, and another one follows.
var errEpoch = errors.New("the epoch of the store in etcd has changed")

// Txn makes attempts until one is answered. After an attempt without an answer, it settles the outcome
// before the next attempt; doc.go has the reasoning.
func (k *kv) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if err := t.Check(); err != nil {
		return store.TxnResult{}, err
	}
	var seen int64 // revision before the last attempt
	var doubt bool // an attempt without an answer may have been committed
	result, err := try(ctx, k, attemptTime, func(attempt context.Context) (result store.TxnResult, err error) {
		seen = k.seen.Load()
		result, err = k.commit(attempt, t)
		refused := errors.Is(err, errEpoch) || errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader)
		if len(t.Then) == 0 || !transient(err) || refused {
			return result, err
		}
		var failed error
		var unsure bool
		result, unsure, failed = k.settle(ctx, &t, seen)
		if doubt = doubt || unsure; result.Succeeded || failed != nil {
			return result, failed
		}
		return result, err
	})
	if err == nil {
		err = k.see(seen, result.Revision)
	}
	if err == nil && doubt && !result.Succeeded {
		err = k.overtaken()
	}
	switch {
	case err == nil:
		return result, nil
	case doubt:
		return store.TxnResult{}, fmt.Errorf(
			"%w; the change may have been made: look whether it was, then try again", k.explain(err))
	}
	return store.TxnResult{}, k.explain(err)
}

// commit makes one attempt. It fails with errEpoch if another client has begun an epoch.
func (k *kv) commit(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	epoch := k.epoch.Load()
	compares := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(k.prefix+epochKey), "=", epoch)}
	for _, c := range t.If {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(k.prefix+c.Key), "=", c.ModRevision))
	}
	var ops []clientv3.Op
	for _, op := range t.Then {
		if key := k.prefix + op.Key; op.Delete {
			ops = append(ops, clientv3.OpDelete(key))
		} else {
			ops = append(ops, clientv3.OpPut(key, string(op.Value), clientv3.WithLease(clientv3.LeaseID(op.Lease))))
		}
	}
	resp, err := k.client.Txn(ctx).If(compares...).Then(ops...).Else(clientv3.OpGet(k.prefix + epochKey)).Commit()
	if err != nil {
		return store.TxnResult{}, err
	}
	if !resp.Succeeded {
		if now := read(resp.Responses[0]).ModRevision; now != epoch {
			k.epoch.Store(now)
			return store.TxnResult{}, errEpoch
		}
	}
	return store.TxnResult{Succeeded: resp.Succeeded, Changed: changed(resp), Revision: resp.Header.Revision}, nil
}

// changed reports whether a transaction changed something.
func changed(resp *clientv3.TxnResponse) bool {
	for _, op := range resp.Responses {
		if op.GetResponsePut() != nil || op.GetResponseDeleteRange().GetDeleted() > 0 {
			return true
		}
	}
	return false
}

// settle begins an epoch, so that no earlier attempt of t can be committed later, and finds out from the
// compared keys whether an attempt was committed after the revision seen. If so, made is its result. If not,
// t has to be tried again; doubt means that an attempt may have been committed nevertheless.
func (k *kv) settle(ctx context.Context, t *store.Txn, seen int64) (made store.TxnResult, doubt bool, err error) {
	ops := []clientv3.Op{clientv3.OpPut(k.prefix+epochKey, "")}
	for _, c := range t.If {
		ops = append(ops, clientv3.OpGet(k.prefix+c.Key))
	}
	resp, err := try(ctx, k, attemptTime, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return k.client.Txn(ctx).Then(ops...).Commit()
	})
	if err != nil {
		return made, true, err
	}
	k.epoch.Store(resp.Header.Revision)
	if err := k.see(seen, resp.Header.Revision); err != nil {
		return made, true, err
	}
	var record *store.Op // the first record that t compares and puts
	var found mvccpb.KeyValue
	var create bool
	deleted := slices.Clone(t.If) // t.If, but keys that t deletes and that do not exist are compared as missing
	for i, op := range t.Then {
		n := slices.IndexFunc(t.If, func(c store.Compare) bool { return c.Key == op.Key })
		if n < 0 {
			continue
		}
		before, now := t.If[n].ModRevision, read(resp.Responses[n+1])
		switch {
		case now.ModRevision != 0 && now.ModRevision <= max(before, seen): // an attempt would have changed it
			return made, false, nil
		case op.Delete && now.ModRevision == 0:
			deleted[n].ModRevision = 0
		case !op.Delete && !op.Mark && record == nil:
			record, found, create = &t.Then[i], now, before == 0
		}
	}
	switch {
	case record == nil:
		t.If = deleted
		return made, true, nil
	case found.ModRevision != 0 && found.Lease == int64(record.Lease) && bytes.Equal(found.Value, record.Value):
		return store.TxnResult{Succeeded: true, Changed: true, Revision: found.ModRevision}, false, nil
	case found.ModRevision == 0 && create && k.neverPut(ctx, *record, seen, resp.Header.Revision):
		return made, false, nil
	}
	return made, true, k.overtaken()
}

// neverPut reports whether a record was not put after revision after, up to revision last.
func (k *kv) neverPut(ctx context.Context, record store.Op, after, last int64) bool {
	w, err := k.Watch(ctx, store.Span{Start: record.Key, End: record.Key + "\x00"}, after+1)
	if err != nil {
		return false
	}
	defer w.Close()
	_, err = w.Progress(ctx) // so that Next does not wait
	var batch store.Batch
	for err == nil && batch.Revision < last {
		batch, err = w.Next(ctx)
		for _, e := range batch.Events {
			if !e.Deleted && bytes.Equal(e.Item.Value, record.Value) {
				return false
			}
		}
	}
	return err == nil
}

// overtaken returns the error for a transaction of which the outcome is unknown.
func (k *kv) overtaken() error {
	return store.Errorf(store.ErrUnavailable, "etcd at %s did not answer in time, "+
		"and others have changed the same records since", k.servers)
}

// read returns the key that an operation has read. If it does not exist, its ModRevision is 0.
func read(op *pb.ResponseOp) mvccpb.KeyValue {
	if kvs := op.GetResponseRange().Kvs; len(kvs) > 0 {
		return *kvs[0]
	}
	return mvccpb.KeyValue{}
}
