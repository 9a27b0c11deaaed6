package caddymodule

import "github.com/caddyserver/caddy/v2"

// These pools hold what outlives a configuration. Keys are identities only (a
// path, an address), never tunables: two configurations that differ in a tunable
// still share the open file and the socket.
var (
	stores    = caddy.NewUsagePool() // by absolute path of the database
	listeners = caddy.NewUsagePool() // by UDP listen address
)

// ref is one use of a pooled value. Its zero value releases nothing, so that a
// module whose Provision failed half way can still be cleaned up.
type ref[T caddy.Destructor] struct {
	pool *caddy.UsagePool
	key  string
	val  T
}

// acquire takes one use of the value under key, making it with mk if it is not
// in use.
func acquire[T caddy.Destructor](pool *caddy.UsagePool, key string, mk func() T) (ref[T], error) {
	v, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return mk(), nil })
	if err != nil {
		return ref[T]{}, err
	}
	return ref[T]{pool: pool, key: key, val: v.(T)}, nil
}

// release gives the use back; the last one destructs the value.
func (r *ref[T]) release() error {
	if r.pool == nil {
		return nil
	}
	pool, key := r.pool, r.key
	*r = ref[T]{val: r.val}
	_, err := pool.Delete(key)
	return err
}
