package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/postern-dev/postern/caddymodule/newest"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

// MinMaxMemory is the minimum of max_memory, in bytes.
const MinMaxMemory = 32 << 20

// DefaultMaxMemory returns the default of max_memory, in bytes. Without a memory limit, Go lets the
// heap grow to twice what is in use, so the default is half as large.
func DefaultMaxMemory() int64 {
	share := memory.Available() / 4
	if _, inForce := memory.Limit(); !inForce {
		share /= 2
	}
	return max(share, MinMaxMemory)
}

// AvailableMemory returns the memory of this process in bytes, which is the maximum of max_memory.
func AvailableMemory() int64 { return max(memory.Available(), MinMaxMemory) }

// Counters are callbacks that count events of a store.
type Counters struct {
	SignInFailed func(method string)
	EventsLost   func(reason string, n int)
	Waited       func(took time.Duration, confirmed bool) // see JoinOptions
}

// StoreConfig configures how a store is opened.
type StoreConfig struct {
	// Path is the database file. In a cluster it contains the records of this gateway alone.
	Path string
	// Shared opens the KV that the gateways of a cluster share. It is nil if the gateway is alone.
	Shared func(context.Context, *slog.Logger) (store.KV, error)
	// Join joins the cluster.
	Join Join
	// Name describes the store to the user.
	Name string
	// Options are the configuration of Join, which a reload cannot change.
	Options string
}

// open opens the store, and joins the cluster if there is one.
func (c StoreConfig) open(o JoinOptions) (st *store.Store, cluster Cluster, err error) {
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("creating the storage directory: %w", err)
	}
	file, err := store.OpenBolt(c.Path, store.BoltOptions{})
	if err != nil {
		return nil, nil, err
	}
	if c.Shared == nil {
		st, err = store.New(file, store.Options{Logger: o.Logger})
	} else {
		st, cluster, err = c.Join(file, o)
	}
	if err != nil {
		_ = file.Close()
	}
	return st, cluster, err
}

// Store is a store that is opened on first use: `caddy validate` provisions, and
// must not lock the file.
type Store struct {
	Messages io.Writer   // for the user, in addition to the log
	Terminal bool        // Messages is a terminal, not a journal or a file
	Welcomed atomic.Bool // the welcome message was printed
	// Later calls a function when Caddy has logged its start, unless the configuration ends first.
	Later func(context.Context, func())

	config   StoreConfig
	logger   *slog.Logger
	counters Counters
	open     atomic.Pointer[Services]
	mu       sync.Mutex // serializes opening and closing
	closed   bool       // permanently

	configurations newest.Stack[*Gateway] // that use the store
}

// errStoreClosed is returned to a request that outlives its configuration and is
// the first to use the store.
var errStoreClosed = errors.New("the store was closed together with its configuration")

// NewStore returns a store, which is not open yet. It writes to logger until a configuration has started, then to the
// log of the newest one.
func NewStore(config StoreConfig, logger *slog.Logger, counters Counters) *Store {
	const settled = time.Second
	s := &Store{
		config: config, counters: counters, Messages: os.Stderr, Terminal: term.IsTerminal(int(os.Stderr.Fd())),
	}
	s.logger = slog.New(currentLog{s, logger.Handler(), func(h slog.Handler) slog.Handler { return h }})
	s.Later = func(ctx context.Context, f func()) {
		go func() {
			defer panics.Recover(s.logger, "welcoming the first user")
			if wait.For(ctx, settled) == nil {
				f()
			}
		}()
	}
	return s
}

// Options returns the Options of the store's configuration.
func (s *Store) Options() string { return s.config.Options }

// Opened returns the store and its services if the store is open, nil otherwise.
func (s *Store) Opened() *Services { return s.open.Load() }

// Get returns the store and its services, opening the store for a configuration if necessary: a request may
// come before its Start. After a failure, the next call tries again.
func (s *Store) Get(g *Gateway) (*Services, error) {
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
	st, cluster, err := s.config.open(JoinOptions{Pin: s.Pin, Waited: s.counters.Waited, Logger: s.logger})
	if err != nil {
		return nil, err
	}
	st.SetSignInPolicy(g.signInPolicy())
	services, err := s.newServices(st, cluster)
	if err != nil {
		return nil, errors.Join(err, leave(cluster), st.Close())
	}
	s.open.Store(services)
	return services, nil
}

func (g *Gateway) signInPolicy() store.SignInPolicy {
	p := g.SignIn
	p.NoConsole = !g.Console
	return p
}

// applySettings applies the settings of the current configuration to its services.
func (s *Store) applySettings(open *Services) {
	if g, ok := s.configurations.Newest(); ok {
		open.Memory.Resize(g.MaxMemory)
		open.Turns.SetSwapAfter(g.SwapAfter)
		open.Store.SetSignInPolicy(g.signInPolicy())
	}
}

// Destruct closes the store permanently after the last configuration that uses the
// file. Running requests keep the closed store and its last view: if they reopened
// the file, nothing would close it, and later configurations could not open it.
func (s *Store) Destruct() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if services := s.open.Load(); services != nil {
		return services.close()
	}
	return nil
}
