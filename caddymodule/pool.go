package caddymodule

import "github.com/caddyserver/caddy/v2"

// These pools hold values that outlive a configuration. Keys are identities (a
// path, an address), never tunables: configurations that differ in a tunable
// still share the open file and the socket.
var (
	stores    = caddy.NewUsagePool() // by absolute path of the database
	listeners = caddy.NewUsagePool() // by UDP listen address
)

// ref is a reference to a pooled value. Its zero value releases nothing, so a
// module whose Provision failed midway can still be cleaned up.
type ref[T caddy.Destructor] struct {
	pool *caddy.UsagePool
	key  string
	val  T
}

// acquire takes a reference to the value under key, creating it with mk if it is
// not in the pool.
func acquire[T caddy.Destructor](pool *caddy.UsagePool, key string, mk func() T) (ref[T], error) {
	v, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return mk(), nil })
	if err != nil {
		return ref[T]{}, err
	}
	return ref[T]{pool: pool, key: key, val: v.(T)}, nil
}

// release drops the reference; the last one destructs the value.
func (r *ref[T]) release() error {
	if r.pool == nil {
		return nil
	}
	pool, key := r.pool, r.key
	*r = ref[T]{val: r.val}
	_, err := pool.Delete(key)
	return err
}
