// Package certstore stores Caddy's certificates, as a storage of certmagic, in the store
// that the gateways of a cluster share. One gateway obtains a certificate, and the others
// read it.
//
// # Reading without the store
//
// Caddy has to start and to reload while the store cannot be reached. So each gateway keeps
// copies of the files that it has read or written in a folder. Reads use the copies while the
// store does not answer. A file without a copy is then an error, but not fs.ErrNotExist: Caddy would
// replace the key of its certificate authority.
//
// Writes and locks need the store. Without it, Caddy keeps its certificates and tries to
// renew them again later.
//
// # Locks
//
// A lock is an item with a lease of its own, which its holder keeps alive. If a gateway dies, its
// locks end with their leases. A gateway can also lose a lock because it cannot reach the store, and
// another gateway may write then. A write of a certificate or an ACME account therefore compares the
// lock of that name if this gateway has obtained it: the files of two gateways are never mixed. While a
// gateway has the lock, it reads only from the store: a copy could be older than the files of the last
// holder.
package certstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	readTimeout   = 3 * time.Second  // of a read that can use a copy
	writeTimeout  = 10 * time.Second // of a write, a lock, or a read by the holder of a lock
	copiesTime    = 10 * time.Second // for which reads use the copies after a call has failed
	openPause     = 2 * time.Second  // between attempts to open the store
	finishTimeout = 5 * time.Second  // for the release of all locks
)

// Options configure New.
type Options struct {
	// Open opens the store. It is called when the storage is first used, and again until
	// it succeeds. The storage closes the store.
	Open func(context.Context) (store.KV, error)
	// Name is the store's name in logs. certmagic logs it.
	Name string
	// Files is the folder of the copies.
	Files  string
	Logger *slog.Logger // nil: none
}

// Storage is a certmagic.Storage. It is safe for concurrent use.
type Storage struct {
	name   string
	open   func(context.Context) (store.KV, error)
	logger *slog.Logger

	ctx    context.Context // ends when the storage is closed
	close  context.CancelFunc
	begin  sync.Once
	opened chan struct{}  // closed when kv is set
	kv     store.KV       // use call
	work   sync.WaitGroup // opening the store, and keeping locks

	copies  certmagic.FileStorage
	copying sync.Mutex // guards changes, and the copies
	changes int        // number of changes by this gateway

	mu      sync.Mutex
	failure error     // of the last call, if the store was unavailable
	retryAt time.Time // until then, reads use the copies
	locks   map[string]*lock
}

// New returns a storage. Destruct ends its use.
func New(o Options) *Storage {
	s := &Storage{
		name: o.Name, open: o.Open, logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		copies: certmagic.FileStorage{Path: o.Files},
		opened: make(chan struct{}), locks: map[string]*lock{},
	}
	s.ctx, s.close = context.WithCancel(context.Background())
	return s
}

// String returns the name of the storage for logs.
func (s *Storage) String() string { return s.name }

// Destruct releases all locks and closes the store.
func (s *Storage) Destruct() error {
	s.mu.Lock() // see keep
	s.close()
	s.mu.Unlock()
	s.begin.Do(func() {})
	s.work.Wait()
	select {
	case <-s.opened:
	default:
		return nil
	}
	return errors.Join(s.unlockAll(), s.kv.Close())
}

// run tries to open the store until that succeeds or the storage is closed.
func (s *Storage) run() {
	for {
		kv, err := s.open(s.ctx)
		if err == nil {
			s.kv = kv
			close(s.opened)
			s.note(nil)
			return
		}
		if s.ctx.Err() != nil {
			return
		}
		s.note(unavailable(err))
		if wait.For(s.ctx, openPause) != nil {
			return
		}
	}
}

// call calls f with the store. It fails with ErrUnavailable if that takes longer than limit.
func (s *Storage) call(ctx context.Context, limit time.Duration, f func(context.Context, store.KV) error) error {
	s.begin.Do(func() { s.work.Go(s.run) })
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err error
	select {
	case <-s.opened:
		err = f(inner, s.kv)
	case <-s.ctx.Done():
		return store.ErrClosed
	case <-inner.Done():
		err = cmp.Or(s.failed(), inner.Err())
	}
	switch {
	case err != nil && ctx.Err() != nil: // not a failure of the store
		return err
	case err != nil && inner.Err() != nil:
		err = unavailable(err)
	}
	s.note(err)
	return err
}

// unavailable returns err as an ErrUnavailable.
func unavailable(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// failed returns the error of the last call if the store was unavailable.
func (s *Storage) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// note remembers whether the store was available.
func (s *Storage) note(err error) {
	if errors.Is(err, store.ErrClosed) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.failure
	if s.failure = nil; errors.Is(err, store.ErrUnavailable) {
		s.failure, s.retryAt = err, time.Now().Add(copiesTime)
	}
	switch {
	case before == nil && s.failure != nil:
		s.logger.Warn("the store of the certificates cannot be reached; using the local copies, and none is renewed",
			"error", err)
	case before != nil && s.failure == nil:
		s.logger.Info("the store of the certificates can be reached again")
	}
}

// skip returns the error of the last call if reads should not try the store yet.
func (s *Storage) skip() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil && time.Now().Before(s.retryAt) {
		return s.failure
	}
	return nil
}
