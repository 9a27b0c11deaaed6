package bodies

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	maxKept  = 8   // bodies of one key in one tunnel
	bodyCost = 512 // bytes, in addition to those of a body
)

// Cache bounds the bodies that a process keeps. It is safe for concurrent use, as is a [Tunnel].
type Cache struct {
	excess func(size int64) int64
	mu     sync.Mutex // guards the tunnels, too
	size   int64      // in bytes, with bodies that are not complete
	lru    *simplelru.LRU[*body, struct{}]
}

// NewCache returns a cache. excess returns how many bytes a cache of a size must give back.
func NewCache(excess func(size int64) int64) *Cache {
	c := &Cache{excess: excess}
	c.lru, _ = simplelru.NewLRU(math.MaxInt, func(b *body, _ struct{}) { // excess bounds it
		c.size -= b.size
		b.tunnel.remove(b)
	})
	return c
}

// Trim drops the least recently used bodies that the cache must give back.
func (c *Cache) Trim() { c.reserve(0) }

// Forget drops the bodies of a key.
func (c *Cache) Forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.lru.Keys() {
		if b.key == key {
			c.lru.Remove(b)
		}
	}
}

// reserve reserves n bytes, and drops bodies for that. It reports false if there is no space.
func (c *Cache) reserve(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.excess(c.size+n) > 0 {
		if _, _, ok := c.lru.RemoveOldest(); !ok {
			return false
		}
	}
	c.size += n
	return true
}

// Tunnel contains the bodies of one tunnel. A nil one keeps none.
type Tunnel struct {
	cache  *Cache
	limit  atomic.Int64 // bytes that the connector keeps; 0 after Close
	used   int64        // the sum of the sizes of bodies at each use: a clock
	last   uint64       // number
	bodies []*body      // in the cache, the most recently used last
}

// NewTunnel returns a tunnel whose connector keeps limit bytes.
func (c *Cache) NewTunnel(limit int64) *Tunnel {
	t := &Tunnel{cache: c}
	t.limit.Store(limit)
	return t
}

// Close drops all bodies. The tunnel keeps no others.
func (t *Tunnel) Close() {
	if t != nil {
		t.limit.Store(0)
		t.find(0, func(*body) bool { return true })
	}
}

// remove removes a body from the list, and reports whether it was there.
func (t *Tunnel) remove(b *body) bool {
	i := slices.Index(t.bodies, b)
	if i >= 0 {
		t.bodies = slices.Delete(t.bodies, i, i+1)
	}
	return i >= 0
}

// body is a body in memory. Its bytes do not change once it is kept.
type body struct {
	tunnel *Tunnel
	key    string
	number uint64
	bytes  []byte
	size   int64 // in the cache
	usedAt int64 // Tunnel.used after the last use
}

// open returns a new body of length bytes. It is nil if there is no space for it and the next one of its conversation.
// If number is 0, the tunnel chooses it. [body.end] must be called.
func (t *Tunnel) open(key string, number uint64, length int64) *body {
	const limit = 1 << 40 // of what a hostile gateway may announce
	if t == nil || length > limit || length > t.limit.Load()/2 || t.cache.excess(2*(length+bodyCost)) > 0 ||
		!t.cache.reserve(length+bodyCost) {
		return nil
	}
	b := &body{tunnel: t, key: key, number: number, bytes: make([]byte, length), size: length + bodyCost}
	t.use(b)
	return b
}

// use makes the body the most recently used one.
func (t *Tunnel) use(b *body) {
	t.cache.mu.Lock()
	defer t.cache.mu.Unlock()
	if t.last++; b.number == 0 {
		b.number = t.last
	}
	t.used += b.size
	b.usedAt = t.used
	if t.cache.lru.Get(b); t.remove(b) {
		t.bodies = append(t.bodies, b)
	}
}

// end keeps a complete body for later requests, instead of the replaced one, which may be nil. It drops an incomplete
// one.
func (b *body) end(complete bool, replaced *body) {
	c := b.tunnel.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if !complete || b.tunnel.limit.Load() == 0 {
		c.size -= b.size
		return
	}
	c.lru.Remove(replaced)
	c.lru.Add(b, struct{}{})
	b.tunnel.bodies = append(b.tunnel.bodies, b)
}

// find returns the most recently used bodies that match. It drops those over limit, and those that the connector has
// probably dropped: since their last use, others that filled its memory were used.
func (t *Tunnel) find(limit int, matches func(*body) bool) (found []*body) {
	t.cache.mu.Lock()
	defer t.cache.mu.Unlock()
	for _, b := range slices.Backward(slices.Clone(t.bodies)) {
		switch {
		case !matches(b):
		case len(found) < limit && t.used-b.usedAt <= t.limit.Load()-b.size:
			found = append(found, b)
		default:
			t.cache.lru.Remove(b)
		}
	}
	return found
}
