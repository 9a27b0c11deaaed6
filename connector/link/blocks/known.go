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
	q := new(Quota)
	q.free.Store(n)
	return q
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
func (k *Known) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.limit = 0
	k.trim()
}

// trim forgets blocks until those left are within the limits. The caller holds the lock.
func (k *Known) trim() {
	for n := k.recent.Len(); n > 0 && (k.size > k.limit || int64(n) > k.quota.free.Load()); n-- {
		b := k.recent.Remove(k.recent.Back()).(*block)
		b.dropped = true
		k.size -= b.cost
		k.quota.free.Add(1)
		if e := k.blocks[b.sum]; e != nil && e.Value == b {
			delete(k.blocks, b.sum)
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
func (k *Known) begin(owner string, whole bool) *request {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seed == [32]byte{} {
		_, _ = rand.Read(k.seed[:])
		k.blocks = make(map[sum]*list.Element)
	}
	hashed := sha256.Sum256([]byte(owner))
	prefix := append(k.seed[:], hashed[:]...)
	return &request{known: k, epoch: k.epoch, hash: sha256.New(), prefix: prefix, whole: whole}
}

// find returns the id of a block, and whether the connector has it. Otherwise the id is new.
// Blocks are counted in the order in which the connector keeps and drops them.
func (r *request) find(bytes []byte) (id uint64, known bool) {
	r.hash.Reset()
	r.hash.Write(r.prefix)
	r.hash.Write(bytes)
	var out [sha256.Size]byte
	s := sum(r.hash.Sum(out[:0]))
	k := r.known
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.blocks[s]; e != nil && !r.whole {
		k.recent.MoveToFront(e)
		return e.Value.(*block).id, true
	}
	k.last++
	b := &block{sum: s, id: k.last, cost: int64(len(bytes)) + blockCost}
	r.new = append(r.new, k.recent.PushFront(b))
	k.size += b.cost
	k.quota.free.Add(-1)
	k.trim()
	return b.id, false
}

// received makes the new blocks of the request usable.
func (r *request) received() {
	k := r.known
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range r.new {
		if b := e.Value.(*block); !b.dropped {
			k.blocks[b.sum] = e
		}
	}
	r.new = nil
}

// unknown forgets all blocks, unless another request did so after this one began.
func (r *request) unknown() {
	k := r.known
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.epoch == r.epoch {
		k.epoch++
		clear(k.blocks)
	}
}
