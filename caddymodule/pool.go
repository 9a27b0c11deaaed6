package caddymodule

import "github.com/caddyserver/caddy/v2"

// These pools hold values that outlive a configuration. Keys are identities (a
// path, an address), never tunables: configurations that differ in a tunable
// still share the open file and the socket.
var (
	stores    = caddy.NewUsagePool() // by absolute path of the database
	listeners = caddy.NewUsagePool() // by UDP listen address
)

// acquire takes a reference to the value under key, creating it with mk if it is
// not in the pool. The last release destructs the value.
func acquire[T caddy.Destructor](pool *caddy.UsagePool, key string, mk func() T) (value T, release func() error, err error) {
	v, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return mk(), nil })
	if err != nil {
		return value, nil, err
	}
	return v.(T), func() error { _, err := pool.Delete(key); return err }, nil
}
