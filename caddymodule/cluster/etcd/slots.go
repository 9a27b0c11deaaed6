package etcd

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	slotPrefix = "x/txn/"
	maxSlots   = 64 // transactions at a time

	// slotIdle is how long a client keeps a slot that it does not use, staleSlot when
	// any client may remove one. The clocks of clients may differ by less than half a day.
	slotIdle  = 12 * time.Hour
	staleSlot = 24 * time.Hour
)

// slots are the slots of a client, which doc.go describes.
type slots struct {
	prefix string        // of etcd
	run    string        // name of this client, different for each
	places chan struct{} // one for each transaction under way

	mu   sync.Mutex
	made int     // number of the next slot
	free []*slot // the one used last at the end
}

func newSlots(prefix string) *slots {
	return &slots{prefix: prefix, run: rand.Text(), places: make(chan struct{}, maxSlots)}
}

// slot is a key of etcd. Its holder is the only one that writes it.
type slot struct {
	name     string // of the key, with the prefix
	revision int64  // of its last change
	used     time.Time
}

// take waits for a slot until ctx ends.
func (s *slots) take(ctx context.Context) (*slot, error) {
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.free) - 1; last >= 0 && time.Since(s.free[last].used) < slotIdle {
		taken := s.free[last]
		s.free = s.free[:last]
		return taken, nil
	}
	s.free = nil // the others are even older
	s.made++
	return &slot{name: s.prefix + s.run + "/" + strconv.Itoa(s.made)}, nil
}

// put takes back a slot. It is used again if no transaction with it is in doubt.
func (s *slots) put(done *slot, reuse bool) {
	s.mu.Lock()
	if reuse {
		done.used = time.Now()
		s.free = append(s.free, done)
	}
	s.mu.Unlock()
	<-s.places
}

// unchanged compares the revision of the slot.
func (s *slot) unchanged() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.name), "=", s.revision)
}

func (s *slot) to(tag string) clientv3.Op { return clientv3.OpPut(s.name, tag) }

// newTag returns a value for a slot that no other transaction uses: the time in seconds
// and random bytes.
func newTag() string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix()))) + rand.Text()
}

// stale reports whether a slot with this value may be removed.
func stale(tag []byte, now time.Time) bool {
	return len(tag) < 8 || now.Sub(time.Unix(int64(binary.BigEndian.Uint64(tag)), 0)) > staleSlot
}

// removeStale removes slots that clients have left behind.
func (s *slots) removeStale(ctx context.Context, k *kv) error {
	var resp *clientv3.GetResponse
	err := k.try(ctx, pageAttempt, func(ctx context.Context) (err error) {
		resp, err = k.client.Get(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithLimit(maxPage))
		return err
	})
	if err != nil {
		return err
	}
	now := time.Now()
	for _, kv := range resp.Kvs {
		if !stale(kv.Value, now) {
			continue
		}
		err := k.try(ctx, firstAttempt, func(ctx context.Context) error {
			_, err := k.client.Delete(ctx, string(kv.Key))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
