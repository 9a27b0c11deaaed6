package caddymodule

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/term"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/store"
)

// What outlives a configuration lives in these pools. Keys are identities
// only (a path, an address), never tunables: two configurations that differ in
// a tunable still share the open file and the socket.
var (
	stores  = caddy.NewUsagePool() // by absolute path of the database
	tunnels = caddy.NewUsagePool() // by UDP listen address
)

// ref is one use of a pooled value. Its zero value releases nothing, so that a
// module whose Provision failed half way can still be cleaned up.
type ref[T caddy.Destructor] struct {
	pool *caddy.UsagePool
	key  string
	val  T
}

// acquire takes one use of the value under key, making it with mk if nobody
// else holds it.
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

// storeHandle is a store that is opened on first use: provisioning a
// configuration (caddy validate) must not lock a file.
type storeHandle struct {
	path     string
	logger   *slog.Logger
	messages io.Writer // for people, beside the log
	terminal bool      // messages go to a person, not to a journal or a file

	open   atomic.Pointer[services]
	mu     sync.Mutex // serialises opening and closing
	closed bool       // for good

	welcomed atomic.Bool // the first user was told how to come in
	force    inForce     // the configurations that use the store
}

// errStoreClosed is what a request meets that outlives the configuration whose
// store it would be the first to use.
var errStoreClosed = errors.New("the store was closed together with the configuration that it belongs to")

func newStoreHandle(path string, logger *slog.Logger) *storeHandle {
	return &storeHandle{path: path, logger: logger, messages: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd()))}
}

// get returns the open store and what works on it, opening it if need be. A
// failure is not remembered: the next call tries again.
func (h *storeHandle) get() (*services, error) {
	if s := h.open.Load(); s != nil {
		return s, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.open.Load(); s != nil {
		return s, nil
	}
	if h.closed {
		return nil, errStoreClosed
	}
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return nil, fmt.Errorf("making the storage directory: %w", err)
	}
	kv, err := store.OpenBolt(h.path, store.BoltOptions{})
	if err != nil {
		return nil, err
	}
	st, err := store.New(kv, store.Options{Logger: h.logger})
	if err != nil {
		_ = kv.Close()
		return nil, err
	}
	s, err := newServices(st, &h.force, h.logger)
	if err != nil {
		_ = st.Close()
		return nil, err
	}
	h.open.Store(s)
	return s, nil
}

// Destruct closes the store for good; the pool calls it when the last
// configuration that uses the file is gone. Requests that still run keep the
// closed store and its last view: if they opened the file again, nobody would
// ever close it, and no later configuration could have it.
func (h *storeHandle) Destruct() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	s := h.open.Load()
	if s == nil {
		return nil
	}
	return s.close()
}
