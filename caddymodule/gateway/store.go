package gateway

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

	"github.com/postern-dev/postern/caddymodule/newest"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/memory"
)

// MinMaxMemory is the least that max_memory may be, in bytes.
const MinMaxMemory = 32 << 20

// DefaultMaxMemory is max_memory unless it is configured, in bytes.
func DefaultMaxMemory() int64 { return max(memory.Available()/4, MinMaxMemory) }

// Counters count what happens on a store.
type Counters struct {
	SignInFailed func(method string)
	EventsLost   func(reason string, n int)
}

// Store is a store that is opened on first use: provisioning a configuration
// (caddy validate) must not lock a file.
type Store struct {
	Messages io.Writer   // to the user, in addition to the log
	Terminal bool        // Messages goes to a person, not to a journal or a file
	Welcomed atomic.Bool // the first user was shown the way in

	path     string
	logger   *slog.Logger
	counters Counters
	open     atomic.Pointer[Services]
	mu       sync.Mutex // serialises opening and closing
	closed   bool       // for good

	configurations newest.Stack[*Gateway, *Gateway] // that use the store
}

// errStoreClosed is the error of a request that outlives the configuration whose
// store it would be the first to use.
var errStoreClosed = errors.New("the store was closed together with the configuration that it belongs to")

// NewStore returns the store of a database file.
func NewStore(path string, logger *slog.Logger, counters Counters) *Store {
	return &Store{path: path, logger: logger, counters: counters, Messages: os.Stderr, Terminal: term.IsTerminal(int(os.Stderr.Fd()))}
}

// Opened returns the open store, nil if it is not.
func (s *Store) Opened() *Services { return s.open.Load() }

// Get returns the open store and what works on it, opening it if need be. A
// failure is not remembered: the next call tries again.
func (s *Store) Get() (*Services, error) {
	if services := s.open.Load(); services != nil {
		return services, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if services := s.open.Load(); services != nil {
		return services, nil
	}
	if s.closed {
		return nil, errStoreClosed
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return nil, fmt.Errorf("making the storage directory: %w", err)
	}
	kv, err := store.OpenBolt(s.path, store.BoltOptions{})
	if err != nil {
		return nil, err
	}
	st, err := store.New(kv, store.Options{Logger: s.logger})
	if err != nil {
		_ = kv.Close()
		return nil, err
	}
	services, err := s.newServices(st)
	if err != nil {
		_ = st.Close()
		return nil, err
	}
	s.open.Store(services)
	return services, nil
}

// applyMemory sets the bounds of the process's memory as the configuration in
// force has them.
func (s *Store) applyMemory(open *Services) {
	if g, ok := s.configurations.Newest(); ok {
		open.Memory.Resize(g.MaxMemory)
		memory.SetSoftLimit(g.MaxMemory)
	}
}

// Destruct closes the store for good, when the last configuration that uses the
// file is gone. Requests that still run keep the closed store and its last view:
// if they opened the file again, nothing would ever close it, and no later
// configuration could have it.
func (s *Store) Destruct() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if services := s.open.Load(); services != nil {
		return services.close()
	}
	return nil
}
