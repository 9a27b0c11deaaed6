package store

import (
	"context"
	"fmt"
	"time"
)

// saveInterval is how long the times of last use are saved up in memory.
const saveInterval = 5 * time.Second

// Touch notes that a key was just used. It does no I/O: the times are written
// together every few seconds and by Close. A killed process loses the last
// ones.
func (s *Store) Touch(k *LiveKey) {
	if k.used(s.now()) {
		s.queue(k)
	}
}

// queue takes the lock only for the first use since the last write.
func (s *Store) queue(k *LiveKey) {
	if k.unsaved.Load() || !k.unsaved.CompareAndSwap(false, true) {
		return
	}
	s.mu.Lock()
	s.unsaved = append(s.unsaved, k)
	s.mu.Unlock()
}

func (s *Store) saveUses(ctx context.Context) {
	ticker := time.NewTicker(saveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return // Close saves the rest
		case <-ticker.C:
			if err := s.flush(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("saving when keys were used", "error", err)
			}
		}
	}
}

// flush writes the saved-up times, and keeps for the next time what it could
// not write. Two processes may write the time of the same key; the view takes
// the later one.
func (s *Store) flush(ctx context.Context) error {
	s.mu.Lock()
	keys := s.unsaved
	s.unsaved = nil
	s.mu.Unlock()
	for _, k := range keys {
		k.unsaved.Store(false) // before reading the time: a later use queues again
	}
	for len(keys) > 0 {
		chunk := keys[:min(len(keys), MaxTxnOps)]
		if err := s.saveChunk(ctx, chunk); err != nil {
			for _, k := range keys {
				s.queue(k)
			}
			return fmt.Errorf("saving when keys were used: %w", err)
		}
		keys = keys[len(chunk):]
	}
	return nil
}

func (s *Store) saveChunk(ctx context.Context, keys []*LiveKey) error {
	ops := make([]Op, 0, len(keys))
	for _, k := range keys {
		at := time.UnixMilli(k.lastUsed.Load()).UTC()
		op, err := encode(lastUsedPath(k.Account(), k.ID()), lastUsedRecord{version{recordVersion}, at})
		if err != nil {
			return err
		}
		ops = append(ops, op)
	}
	_, err := s.kv.Txn(ctx, Txn{Then: ops})
	return err
}
