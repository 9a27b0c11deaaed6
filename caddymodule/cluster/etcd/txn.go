package etcd

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Txn tries until the outcome is known; doc.go has the reasoning.
func (k *kv) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if err := t.Check(); err != nil {
		return store.TxnResult{}, err
	}
	seen, doubt := k.seen.Load(), false // doubt: an attempt may have been applied, or may still be
	for {
		resp, err := try(ctx, k, attemptTime, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			resp, err := k.commit(ctx, t, doubt)
			doubt = doubt || len(t.Then) > 0 && transient(err)
			return resp, err
		})
		switch {
		case err != nil && doubt:
			return store.TxnResult{}, fmt.Errorf("%w; the change may have been made: "+
				"look whether it was, then try again", k.explain(err))
		case err != nil:
			return store.TxnResult{}, k.explain(err)
		}
		result := store.TxnResult{Succeeded: resp.Succeeded, Changed: changed(resp), Revision: resp.Header.Revision}
		if err := k.see(seen, result.Revision); err != nil || result.Succeeded || !doubt {
			return result, err
		}
		switch outcome, at := settle(&t, resp); outcome {
		case made:
			return store.TxnResult{Succeeded: true, Changed: true, Revision: at}, nil
		case conflict:
			return result, nil
		case unknown:
			return store.TxnResult{}, store.Errorf(store.ErrUnavailable, "etcd at %s did not answer in time, "+
				"and others have changed the same records since: this change may have been made or not, so look whether it was, then try again", k.servers)
		}
	}
}

// commit makes one attempt. If it is in doubt whether an earlier one was applied, it reads the
// compared keys if a compare fails.
func (k *kv) commit(ctx context.Context, t store.Txn, doubt bool) (*clientv3.TxnResponse, error) {
	var compares []clientv3.Cmp
	var ops, reads []clientv3.Op
	for _, c := range t.If {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(k.prefix+c.Key), "=", c.ModRevision))
		if doubt {
			reads = append(reads, clientv3.OpGet(k.prefix+c.Key))
		}
	}
	for _, op := range t.Then {
		if key := k.prefix + op.Key; op.Delete {
			ops = append(ops, clientv3.OpDelete(key))
		} else {
			ops = append(ops, clientv3.OpPut(key, string(op.Value), clientv3.WithLease(clientv3.LeaseID(op.Lease))))
		}
	}
	return k.client.Txn(ctx).If(compares...).Then(ops...).Else(reads...).Commit()
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

// outcome is what has become of the attempts of a transaction.
type outcome int

const (
	unknown  outcome = iota
	made             // by one of them
	conflict         // none was applied, and none will be
	gone             // what it deletes does not exist
)

// settle finds out what has become of earlier attempts from the keys that the last one read when
// a compare failed. It returns the revision if one of them was made. If what t deletes is gone, it
// changes t to compare that.
func settle(t *store.Txn, resp *clientv3.TxnResponse) (o outcome, revision int64) {
	before, now := make(map[string]int64), make(map[string]mvccpb.KeyValue) // compared keys
	final := false                                                          // a compare fails that will never hold
	for i, c := range t.If {
		before[c.Key] = c.ModRevision
		if kvs := resp.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
			now[c.Key] = *kvs[0]
		}
		final = final || c.ModRevision != 0 && now[c.Key].ModRevision != c.ModRevision
	}
	var record *store.Op // the first that t compares and puts
	var deleted []string // what t compares and deletes
	for _, op := range t.Then {
		revision, compared := before[op.Key]
		switch {
		case !compared || op.Delete && revision == 0:
		case now[op.Key].ModRevision == revision && final:
			return conflict, 0
		case now[op.Key].ModRevision == revision:
			return unknown, 0
		case op.Delete:
			deleted = append(deleted, op.Key)
		case record == nil && !op.Mark:
			record = &op
		}
	}
	switch {
	case record != nil:
		kv := now[record.Key]
		if kv.ModRevision != 0 && kv.Lease == int64(record.Lease) && bytes.Equal(kv.Value, record.Value) {
			return made, kv.ModRevision
		}
		return unknown, 0
	case len(deleted) == 0 || slices.ContainsFunc(deleted, func(key string) bool { return now[key].ModRevision != 0 }):
		return unknown, 0
	}
	t.If = slices.Clone(t.If)
	for i, c := range t.If {
		if slices.Contains(deleted, c.Key) {
			t.If[i].ModRevision = 0
		}
	}
	return gone, 0
}
