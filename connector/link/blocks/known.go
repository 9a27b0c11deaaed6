package blocks

import (
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"hash"
	"sync"
	"sync/atomic"
)

// Quota bounds the blocks of all tunnels that a gateway knows. A tunnel may know at most as many as
// are left for the others.
type Quota struct{ free atomic.Int64 }

// NewQuota returns a bound of n blocks. Each takes about 200 bytes.
func NewQuota(n int64) *Quota {
	r := new(Quota)
	r.free.Store(n)
	return r
}

// sum identifies the bytes of a block of an owner.
type sum [16]byte

// Known are the blocks of one tunnel that the gateway knows: it believes that the connector keeps
// them. It is safe for concurrent use.
type Known struct {
	quota *Quota

	mu     sync.Mutex
	limit  int64 // of size
	size   int64
	seed   [32]byte              // random; zero before the first use
	last   uint64                // id
	blocks map[sum]*list.Element // usable blocks in recent
	recent list.List             // of *block, most recently used first
	epoch  int                   // changes when all blocks are forgotten
}

// block is a block that was sent to the connector.
type block struct {
	sum
	id      uint64
	cost    int64
	dropped bool // by the connector, probably
}

// NewKnown returns the known blocks of a new tunnel, whose connector keeps limit bytes.
func NewKnown(quota *Quota, limit int64) *Known {
	// The connector must not drop a block first, although the two ends may see requests that run
	// in parallel in different orders.
	return &Known{quota: quota, limit: limit - limit/8}
}

// Close forgets all blocks for good.
func (h *Known) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limit = 0
	h.trim()
}

// trim forgets blocks until those left are within the limits. The caller holds the lock.
func (h *Known) trim() {
	for n := h.recent.Len(); n > 0 && (h.size > h.limit || int64(n) > h.quota.free.Load()); n-- {
		b := h.recent.Remove(h.recent.Back()).(*block)
		b.dropped = true
		h.size -= b.cost
		h.quota.free.Add(1)
		if e := h.blocks[b.sum]; e != nil && e.Value == b {
			delete(h.blocks, b.sum)
		}
	}
}

// request is the use of blocks by one request.
type request struct {
	known  *Known
	epoch  int
	hash   hash.Hash
	prefix []byte
	whole  bool            // refers to no block
	new    []*list.Element // of *block
}

// begin begins a request of an owner, which refers to no block if it is sent whole.
func (h *Known) begin(owner string, whole bool) *request {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seed == [32]byte{} {
		_, _ = rand.Read(h.seed[:])
		h.blocks = make(map[sum]*list.Element)
	}
	hashed := sha256.Sum256([]byte(owner))
	prefix := append(h.seed[:], hashed[:]...)
	return &request{known: h, epoch: h.epoch, hash: sha256.New(), prefix: prefix, whole: whole}
}

// find returns the id of a block, and whether the connector has it. Otherwise the id is new.
// Blocks are counted in the order in which the connector keeps and drops them.
func (r *request) find(bytes []byte) (id uint64, known bool) {
	r.hash.Reset()
	r.hash.Write(r.prefix)
	r.hash.Write(bytes)
	var out [sha256.Size]byte
	s := sum(r.hash.Sum(out[:0]))
	h := r.known
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.blocks[s]; e != nil && !r.whole {
		h.recent.MoveToFront(e)
		return e.Value.(*block).id, true
	}
	h.last++
	b := &block{sum: s, id: h.last, cost: int64(len(bytes)) + blockCost}
	r.new = append(r.new, h.recent.PushFront(b))
	h.size += b.cost
	h.quota.free.Add(-1)
	h.trim()
	return b.id, false
}

// received makes the new blocks of the request usable.
func (r *request) received() {
	h := r.known
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range r.new {
		if b := e.Value.(*block); !b.dropped {
			h.blocks[b.sum] = e
		}
	}
	r.new = nil
}

// unknown forgets all blocks, unless another request did so after this one began.
func (r *request) unknown() {
	h := r.known
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.epoch == r.epoch {
		h.epoch++
		clear(h.blocks)
	}
}
