package caddymodule

import "github.com/caddyserver/caddy/v2"

// acquire takes a reference to the value of a pool under key. If there is none, create returns it. The
// last release destructs the value.
//
// Values of pools outlive a configuration. Keys are identities such as a path or an address, never
// tunables: configurations that differ in a tunable share the open file and the socket.
func acquire[T caddy.Destructor](pool *caddy.UsagePool, key string, create func() T) (
	value T, release func() error, err error,
) {
	v, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return create(), nil })
	if err != nil {
		return value, nil, err
	}
	return v.(T), func() error { _, err := pool.Delete(key); return err }, nil
}
