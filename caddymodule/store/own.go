package store

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A gateway writes the records of which it is the only writer to a KV of its own, or to the shared one if the gateway
// is alone. Keys below these directories are not watched, and not in the view.
const (
	dirUnwatched = "x/"
	dirPeople    = dirUnwatched + "people/"
	dirUsage     = dirUnwatched + "usage/"
	dirHours     = dirUnwatched + "usage_hours/" // next to dirUsage
)

// localEdge is the name of a gateway in its usage rows if it has no other.
const localEdge = "local"

const (
	// publishInterval is how often the usage is copied from the KV of the gateway to the shared one.
	publishInterval = 30 * time.Second
	// keepPublished is how long published usage is kept in the KV of the gateway. The writer of the
	// usage may repeat a failed write on the next day.
	keepPublished = 3 * 24 * time.Hour
	// maxBatch bounds the operations of a [Batcher]: other writers wait until they are made.
	maxBatch = 2000
)

// Batcher is implemented by a KV that applies many operations at the cost of one transaction.
type Batcher interface {
	// Batch applies all operations or none, without compares.
	Batch(ctx context.Context, ops []Op) error
}

// putOwn applies the operations of t to the KV of the gateway. It needs no compares, since these keys
// have no other writer, and does not wait for the view, which does not contain them.
func (s *Store) putOwn(ctx context.Context, t *tx) error {
	size, batch := MaxTxnOps, func(ctx context.Context, ops []Op) error {
		_, err := s.own.Txn(ctx, Txn{Then: ops})
		return err
	}
	if b, ok := s.own.(Batcher); ok {
		size, batch = maxBatch, b.Batch
	}
	err := t.err
	for chunk := range slices.Chunk(t.Then, size) {
		if err == nil {
			err = batch(ctx, chunk)
		}
	}
	return err
}

// PublishUsage copies the changed usage of this gateway from its own KV to the shared one. It
// deletes its own records of past days and of removed accounts.
func (s *Store) PublishUsage(ctx context.Context) error {
	if s.own == s.shared {
		return nil
	}
	s.publishing.Lock()
	defer s.publishing.Unlock()
	past := s.now().Add(-keepPublished).UTC().Format(time.DateOnly)
	puts, deletes := new(tx), new(tx)
	revision, err := s.own.Each(ctx, Span{Start: dirPeople, End: Prefix(dirHours).End}, func(item Item) error {
		r, _ := rowOf(item.Key)
		kept := s.keeps(&r)
		if kept && item.ModRevision > s.published.Load() {
			puts.Then = append(puts.Then, Put(item.Key, item.Value))
		}
		if !kept || r.Day < past {
			deletes.delete(item.Key)
		}
		return nil
	})
	for chunk := range slices.Chunk(puts.Then, MaxTxnOps) {
		if err == nil {
			_, err = s.shared.Txn(ctx, Txn{Then: chunk})
		}
	}
	if err == nil {
		err = s.putOwn(ctx, deletes)
	}
	if err != nil {
		return fmt.Errorf("publishing the usage: %w", err)
	}
	s.published.Store(revision)
	return nil
}
