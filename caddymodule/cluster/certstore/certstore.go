// Package certstore is a storage of certmagic, and so of Caddy's certificates, in the store
// that the gateways of a cluster share. One gateway obtains a certificate, and the others
// read it.
//
// # Reading without the store
//
// Caddy has to start and to reload while the store cannot be reached. So each gateway keeps
// copies of the files that it has read or written in a folder. Reads use the copies while the
// store does not answer. A file that is neither in the store nor in a copy is unknown then,
// not missing: Caddy would replace the key of its certificate authority otherwise.
//
// Writes and locks need the store. Without it, Caddy keeps its certificates and tries to
// renew them again later.
//
// # Locks
//
// A lock is an item with a lease of its own, which its holder keeps alive, so the lock of a
// gateway that has died ends with the lease. A gateway can lose a lock without dying, if it
// cannot reach the store for as long, and another one may write then. So a write of a
// certificate or an ACME account also compares the lock of that name if this gateway has
// locked it: the files of two gateways are never mixed. While a gateway has the lock, it
// reads only from the store: a copy could be older than what the last holder wrote.
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
)

const (
	readTime   = 3 * time.Second  // for a read that has a copy to fall back to
	writeTime  = 10 * time.Second // for a write, a lock, or a read by the holder of a lock
	awayTime   = 10 * time.Second // for reads to use the copies after a call has failed
	openPause  = 2 * time.Second  // between attempts to open the store
	finishTime = 5 * time.Second  // to release all locks
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
	changes int        // by this gateway

	mu      sync.Mutex
	failure error     // of the last call, if the store was unavailable
	away    time.Time // until then, reads use the copies
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
	s.mu.Lock() // see hold
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

// run opens the store, however long that takes.
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
		select {
		case <-time.After(openPause):
		case <-s.ctx.Done():
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
	case err != nil && ctx.Err() != nil: // says nothing about the store
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
		s.failure, s.away = err, time.Now().Add(awayTime)
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
	if s.failure != nil && time.Now().Before(s.away) {
		return s.failure
	}
	return nil
}
