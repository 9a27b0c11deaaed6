package blocks

import (
	"bytes"
	"container/list"
	"sync"
)

// blockCost is what a connector counts for a block in addition to its bytes.
const blockCost = 128

// Store keeps the blocks of one tunnel at its connector. It is safe for concurrent use.
type Store struct {
	mu     sync.Mutex
	limit  int64 // bytes
	size   int64
	blocks map[uint64]*list.Element // of stored
	recent list.List                // most recently used first
}

type stored struct {
	id    uint64
	bytes []byte // never modified
}

// NewStore returns a store for limit bytes.
func NewStore(limit int64) *Store {
	return &Store{limit: limit, blocks: make(map[uint64]*list.Element)}
}

// get returns a block, or nil if the store does not have it.
func (s *Store) get(id uint64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.blocks[id]
	if e == nil {
		return nil
	}
	s.recent.MoveToFront(e)
	return e.Value.(stored).bytes
}

// put keeps a copy of a block, and drops others for it.
func (s *Store) put(id uint64, block []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(s.blocks[id])
	cost := int64(len(block)) + blockCost
	if cost > s.limit {
		return
	}
	for s.size+cost > s.limit {
		s.drop(s.recent.Back())
	}
	s.size += cost
	s.blocks[id] = s.recent.PushFront(stored{id, bytes.Clone(block)})
}

// drop removes a block. e may be nil.
func (s *Store) drop(e *list.Element) {
	if e == nil {
		return
	}
	b := s.recent.Remove(e).(stored)
	delete(s.blocks, b.id)
	s.size -= int64(len(b.bytes)) + blockCost
}
