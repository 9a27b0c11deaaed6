package tokens

import "sync"

// cache holds recently used values in two generations of at most size values. The old one
// is dropped when the young one is full. It is safe for concurrent use.
type cache[K comparable, V any] struct {
	size int

	mu         sync.Mutex
	young, old map[K]V
}

// get returns the value of a key.
func (c *cache[K, V]) get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, ok := c.young[key]
	if !ok {
		if value, ok = c.old[key]; ok {
			c.add(key, value)
		}
	}
	return value, ok
}

// put sets the value of a key.
func (c *cache[K, V]) put(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(key, value)
}

// add adds a value to the young generation. The caller holds c.mu.
func (c *cache[K, V]) add(key K, value V) {
	if c.young == nil || len(c.young) >= c.size {
		c.old, c.young = c.young, make(map[K]V)
	}
	c.young[key] = value
}
