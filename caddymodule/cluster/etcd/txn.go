package etcd

import (
	"context"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Txn tries until the outcome is known; doc.go has the reasoning.
func (k *kv) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if err := t.Check(); err != nil {
		return store.TxnResult{}, err
	}
	s, err := k.slots.take(ctx)
	if err != nil {
		return store.TxnResult{}, k.unavailable(err, nil)
	}
	a := &attempts{k: k, slot: s, tag: newTag(), t: t}
	result, err := a.run(ctx)
	k.slots.put(s, !a.doubt)
	return result, k.explain(err)
}

// attempts are the attempts of one transaction.
type attempts struct {
	k     *kv
	slot  *slot
	tag   string // what they put into the slot
	t     store.Txn
	doubt bool // one of them may have been applied, or may still be
}

func (a *attempts) run(ctx context.Context) (store.TxnResult, error) {
	r := a.k.retry(ctx, firstAttempt)
	for {
		var resp *clientv3.TxnResponse
		err := r.attempt(func(ctx context.Context) (err error) {
			resp, err = a.commit(ctx)
			return err
		})
		answered := err == nil || !transient(err)
		switch {
		case err == nil && resp.Succeeded:
			a.doubt, a.slot.revision = false, resp.Header.Revision
			return store.TxnResult{Succeeded: true, Changed: changed(resp), Revision: a.slot.revision}, nil
		case err == nil && !a.doubt:
			return store.TxnResult{Revision: resp.Header.Revision}, nil
		case answered && a.doubt:
			return a.settle(ctx, err)
		}
		a.doubt = a.doubt || !answered
		if err := r.next(err); err != nil {
			return store.TxnResult{}, err
		}
	}
}

func (a *attempts) commit(ctx context.Context) (*clientv3.TxnResponse, error) {
	compares, ops := []clientv3.Cmp{a.slot.unchanged()}, []clientv3.Op{a.slot.to(a.tag)}
	for _, c := range a.t.If {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(a.k.prefix+c.Key), "=", c.ModRevision))
	}
	for _, op := range a.t.Then {
		if key := a.k.prefix + op.Key; op.Delete {
			ops = append(ops, clientv3.OpDelete(key))
		} else {
			ops = append(ops, clientv3.OpPut(key, string(op.Value), clientv3.WithLease(clientv3.LeaseID(op.Lease))))
		}
	}
	return a.k.client.Txn(ctx).If(compares...).Then(ops...).Commit()
}

// changed reports whether a transaction changed more than its slot.
func changed(resp *clientv3.TxnResponse) bool {
	for _, op := range resp.Responses[1:] {
		if op.GetResponsePut() != nil || op.GetResponseDeleteRange().GetDeleted() > 0 {
			return true
		}
	}
	return false
}

// settle is called when the last attempt was not applied, with its error if it was not
// for a compare, and an earlier one may be. It makes sure that none can be applied later,
// and finds out whether one was.
func (a *attempts) settle(ctx context.Context, failed error) (store.TxnResult, error) {
	// Either this write or an attempt changes the slot, and nothing else can any longer.
	other := newTag()
	err := a.k.try(ctx, firstAttempt, func(ctx context.Context) error {
		_, err := a.k.client.Txn(ctx).If(a.slot.unchanged()).Then(a.slot.to(other)).Commit()
		return err
	})
	if err != nil {
		return store.TxnResult{}, err
	}
	now, err := a.k.Get(ctx, strings.TrimPrefix(a.slot.name, a.k.prefix))
	if err != nil {
		return store.TxnResult{}, err
	}
	a.doubt, a.slot.revision = false, now.ModRevision
	if string(now.Value) != a.tag {
		return store.TxnResult{Revision: now.ModRevision}, failed
	}
	changed, err := a.changedAt(ctx, now.ModRevision)
	return store.TxnResult{Succeeded: true, Changed: changed, Revision: now.ModRevision}, err
}

// changedAt reports whether the transaction made changes, when its revision is known but
// its answer was lost.
func (a *attempts) changedAt(ctx context.Context, revision int64) (bool, error) {
	var gets []clientv3.Op
	for _, op := range a.t.Then {
		if !op.Delete {
			return true, nil
		}
		gets = append(gets, clientv3.OpGet(a.k.prefix+op.Key, clientv3.WithRev(revision-1), clientv3.WithCountOnly()))
	}
	existed := false
	err := a.k.try(ctx, firstAttempt, func(ctx context.Context) error {
		resp, err := a.k.client.Txn(ctx).Then(gets...).Commit()
		if err == nil {
			existed = slices.ContainsFunc(resp.Responses, func(r *pb.ResponseOp) bool { return r.GetResponseRange().GetCount() > 0 })
		}
		return err
	})
	return existed, err
}
