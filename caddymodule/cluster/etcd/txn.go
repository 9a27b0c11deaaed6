package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/store"
)

// errEpoch means that an attempt has changed nothing, and another one follows.
var errEpoch = errors.New("the epoch of the store in etcd has changed")

// Txn makes attempts until one is answered. After an attempt without an answer, it finds out whether that was
// committed: see doc.go.
func (k *kv) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if err := t.Check(); err != nil {
		return store.TxnResult{}, err
	}
	record := slices.IndexFunc(t.Then, func(op store.Op) bool { return !op.Delete && !op.Mark })
	var before int64 // revision before the last attempt
	var doubt bool   // an attempt had no answer
	result, err := try(ctx, k, attemptTime, func(attempt context.Context) (store.TxnResult, error) {
		before = k.seen.Load()
		result, err := k.commit(attempt, t, doubt && record < 0)
		refused := errors.Is(err, errEpoch) || errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader)
		if len(t.Then) == 0 || refused || !transient(err) {
			return result, err
		}
		doubt = true
		failed := k.newEpoch(ctx)
		if failed == nil && record >= 0 {
			result.Revision, failed = k.findPut(ctx, t.Then[record], before)
		}
		if failed != nil || result.Revision > 0 {
			return store.TxnResult{Succeeded: true, Changed: true, Revision: result.Revision}, failed
		}
		return result, err
	})
	if err == nil {
		err = k.see(before, result.Revision)
	}
	if err == nil && doubt && record < 0 && !result.Succeeded {
		err = store.Errorf(store.ErrUnavailable, "etcd at %s did not answer in time, and others have changed the same "+
			"records since", k.servers)
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

// commit makes one attempt. It fails with errEpoch if another client has begun an epoch. If again is set, keys that
// t deletes need not exist.
func (k *kv) commit(ctx context.Context, t store.Txn, again bool) (store.TxnResult, error) {
	epoch, deletes := k.epoch.Load(), map[string]bool{}
	var ops []clientv3.Op
	for _, op := range t.Then {
		if key := k.prefix + op.Key; op.Delete {
			deletes[op.Key] = true
			ops = append(ops, clientv3.OpDelete(key))
		} else {
			ops = append(ops, clientv3.OpPut(key, string(op.Value), clientv3.WithLease(clientv3.LeaseID(op.Lease))))
		}
	}
	compares := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(k.prefix+schemaKey), "=", epoch)}
	for _, c := range t.If {
		if revision := clientv3.ModRevision(k.prefix + c.Key); again && deletes[c.Key] {
			compares = append(compares, clientv3.Compare(revision, "<", c.ModRevision+1)) // 0: it does not exist
		} else {
			compares = append(compares, clientv3.Compare(revision, "=", c.ModRevision))
		}
	}
	resp, err := k.client.Txn(ctx).If(compares...).Then(ops...).Else(clientv3.OpGet(k.prefix + schemaKey)).Commit()
	if err != nil {
		return store.TxnResult{}, err
	}
	if !resp.Succeeded {
		if now := read(resp.Responses[0]).ModRevision; now != epoch {
			k.epoch.Store(now)
			return store.TxnResult{}, errEpoch
		}
	}
	changed := slices.ContainsFunc(resp.Responses, func(op *pb.ResponseOp) bool {
		return op.GetResponsePut() != nil || op.GetResponseDeleteRange().GetDeleted() > 0
	})
	return store.TxnResult{Succeeded: resp.Succeeded, Changed: changed, Revision: resp.Header.Revision}, nil
}

// newEpoch puts the schema, unless another client has done so. No earlier attempt of a transaction can be committed
// after that.
func (k *kv) newEpoch(ctx context.Context) error {
	epoch := k.epoch.Load()
	resp, err := try(ctx, k, attemptTime, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return k.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(k.prefix+schemaKey), "=", epoch)).
			Then(clientv3.OpPut(k.prefix+schemaKey, strconv.Itoa(schema))).
			Else(clientv3.OpGet(k.prefix + schemaKey)).Commit()
	})
	switch {
	case err != nil:
		return err
	case resp.Succeeded:
		epoch = resp.Header.Revision
	default:
		epoch = read(resp.Responses[0]).ModRevision
	}
	k.epoch.Store(epoch)
	return k.see(0, resp.Header.Revision)
}

// findPut returns the revision at which a record was put between a revision and the present epoch, or 0.
func (k *kv) findPut(ctx context.Context, record store.Op, after int64) (int64, error) {
	w, err := k.Watch(ctx, store.Span{Start: record.Key, End: record.Key + "\x00"}, after+1)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	for reached := after; reached < k.epoch.Load(); {
		batch, err := w.Next(ctx)
		if err != nil {
			return 0, err
		}
		for _, e := range batch.Events {
			if !e.Deleted && bytes.Equal(e.Item.Value, record.Value) {
				return e.Item.ModRevision, nil
			}
		}
		reached = batch.Revision
	}
	return 0, nil
}

// read returns the first key that an operation has read. If it does not exist, its ModRevision is 0.
func read(op *pb.ResponseOp) mvccpb.KeyValue {
	if kvs := op.GetResponseRange().Kvs; len(kvs) > 0 {
		return *kvs[0]
	}
	return mvccpb.KeyValue{}
}
