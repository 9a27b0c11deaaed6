package etcd

import (
	"context"
	"errors"
	"io"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/postern-dev/postern/caddymodule/store"
)

func (k *kv) Get(ctx context.Context, key string) (store.Item, error) {
	if err := store.CheckKey(key); err != nil {
		return store.Item{}, err
	}
	resp, err := try(ctx, k, attemptTime, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return k.client.Get(ctx, k.prefix+key)
	})
	if err != nil {
		return store.Item{}, k.explain(err)
	}
	_ = k.see(0, resp.Header.Revision)
	if len(resp.Kvs) == 0 {
		return store.Item{Key: key}, nil
	}
	return k.item(resp.Kvs[0]), nil
}

// revision returns the revision of etcd, as of now.
func (k *kv) revision(ctx context.Context) (int64, error) {
	seen := k.seen.Load()
	resp, err := try(ctx, k, attemptTime, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return k.client.Get(ctx, k.prefix+schemaKey, clientv3.WithCountOnly())
	})
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

// Each reads pages of about pageBytes. For each page, etcd counts all items that follow, so
// pages must not be small: a million items take 118 s in pages of 1,000.
func (k *kv) Each(ctx context.Context, span store.Span, f func(store.Item) error) (revision int64, err error) {
	start, end := k.bounds(span)
	for page := newPage(); ; {
		resp, err := try(ctx, k, pageTime, func(ctx context.Context) (*clientv3.GetResponse, error) {
			limit, rev := clientv3.WithLimit(page.items), clientv3.WithRev(revision)
			return k.client.Get(ctx, start, clientv3.WithRange(end), limit, rev)
		})
		switch {
		case tooLarge(err) && page.items > 1:
			page.shrink()
			continue
		case errors.Is(err, rpctypes.ErrCompacted):
			return 0, store.Errorf(store.ErrCompacted,
				"reading the store from etcd at %s took longer than etcd keeps old revisions: "+
					"try again, or compact it less often", k.servers)
		case err != nil:
			return 0, k.explain(err)
		}
		if revision == 0 {
			revision = resp.Header.Revision
			_ = k.see(0, revision)
		}
		if err := k.eachOf(resp.Kvs, f); err != nil {
			return 0, err
		}
		if !resp.More {
			return revision, nil
		}
		page.read(resp)
		start = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

func (k *kv) eachOf(kvs []*mvccpb.KeyValue, f func(store.Item) error) error {
	for _, kv := range kvs {
		if item := k.item(kv); !hidden(item.Key) {
			if err := f(item); err != nil {
				return err
			}
		}
	}
	return nil
}

// page is the number of items to read next. etcd limits answers by their items only. If the values
// of a page are much larger than earlier ones, the answer exceeds maxReceive, and is read again
// in smaller pages.
type page struct{ items int64 }

const (
	pageBytes = 16 << 20
	maxPage   = 64 << 10 // items
)

func newPage() *page { return &page{items: 1000} }

// read sets the size of the next page after one that was read.
func (p *page) read(resp *clientv3.GetResponse) {
	perItem := int64((*pb.RangeResponse)(resp).Size())/int64(len(resp.Kvs)) + 1
	p.items = max(1, min(8*p.items, pageBytes/perItem, maxPage))
}

func (p *page) shrink() { p.items = max(1, p.items/8) }

// tooLarge reports whether gRPC refused an answer because of maxReceive.
func tooLarge(err error) bool {
	return code(err) == codes.ResourceExhausted && !errors.As(rpctypes.Error(err), new(rpctypes.EtcdError))
}

// Backup writes the items without their leases, which do not exist in another store.
func (k *kv) Backup(ctx context.Context, w io.Writer) error {
	return store.WriteBolt(ctx, k, w)
}

// bounds returns the range of etcd's keys for a span.
func (k *kv) bounds(span store.Span) (start, end string) {
	if span.End == "" {
		return k.prefix + span.Start, clientv3.GetPrefixRangeEnd(k.prefix)
	}
	return k.prefix + span.Start, k.prefix + span.End
}

// hidden reports whether a key is not an item of the KV.
func hidden(key string) bool { return key == schemaKey || key == epochKey }

// item returns the item of a key of etcd.
func (k *kv) item(kv *mvccpb.KeyValue) store.Item {
	item := store.Item{
		Key:            strings.TrimPrefix(string(kv.Key), k.prefix),
		Value:          kv.Value,
		CreateRevision: kv.CreateRevision,
		ModRevision:    kv.ModRevision,
	}
	if item.Value == nil {
		item.Value = []byte{}
	}
	return item
}
