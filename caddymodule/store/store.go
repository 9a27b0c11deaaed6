package store

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/caddymodule/subscribe"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

// Options adjusts New. The zero value is right for a gateway.
type Options struct {
	Logger *slog.Logger     // nil: nothing is logged
	Now    func() time.Time // for the times in records; nil: time.Now

	// Edge is the name of this gateway among those that share the KV; "": it is alone.
	Edge string
	// Own is the KV of this gateway alone, for records that change too often to be shared. The
	// store owns it. nil: all records are in the shared KV.
	Own KV
	// Cluster is for gateways that share the KV. nil: the gateway is alone.
	Cluster Cluster
}

// Store reads and writes the records of a gateway in a KV. Its methods are safe for
// concurrent use.
type Store struct {
	shared        KV
	own           KV // the shared one if the gateway is alone
	edge          string
	cluster       Cluster
	touchInterval time.Duration // minimum time between two writes of the same time of use
	log           *slog.Logger
	now           func() time.Time
	view          atomic.Pointer[view]
	sealer        atomic.Pointer[Sealer] // nil: not yet loaded
	policy        atomic.Pointer[SignInPolicy]
	appliedPolicy *SignInPolicy // of the goroutine that calls applyPolicy

	refreshes   singleflight.Group // the calls of Refresh
	refreshPace *rate.Limiter      // of refreshes

	notified *view       // the last view whose callbacks have all returned; of the goroutine that publishes
	broken   atomic.Bool // a worker has panicked: nothing is accepted until the store has been read again

	closed       atomic.Bool
	sharedClosed bool // shared is closed already, see Stopping
	subscribers  subscribe.List[Change]

	applied  atomic.Int64 // revision of the view whose callbacks have returned
	progress wait.Change  // of applied and closed

	mu      sync.Mutex
	watcher Watcher // the latest
	unsaved []*use  // to be written

	publishing sync.Mutex
	published  atomic.Int64 // PublishUsage has reached this revision of own; set under publishing
	compactTo  int64        // the next compact drops the changes before this revision

	auditMu    sync.Mutex
	auditAdded map[string]int // by account: entries added to the audit log since it was last trimmed

	ctx     context.Context    // of the goroutines
	stop    context.CancelFunc // ends ctx
	workers sync.WaitGroup
}

// New reads kv into memory and creates the default account if necessary. The store owns
// kv: Close closes it. If New fails, the caller keeps kv and o.Own.
func New(kv KV, o Options) (*Store, error) {
	s := newStore(kv, o)
	ctx, stop := context.WithCancel(context.Background())
	s.ctx, s.stop = ctx, stop
	watcher, err := s.loadFirst(ctx)
	if err != nil {
		stop()
		return nil, err
	}
	s.workers.Go(func() { s.run(ctx, watcher) })
	err = s.update(ctx, "creating the default account", func(t *tx) error {
		if accountKind.load(t, "", DefaultAccount) == nil {
			accountKind.save(t, &accountRecord{Account: Account{ID: DefaultAccount, Name: DefaultAccount, CreatedAt: s.time()}})
		}
		return nil
	})
	if err != nil {
		stop()
		s.workers.Wait()
		return nil, err
	}
	s.workers.Go(func() { s.repeat(ctx, saveInterval, "failed to save times of last use", s.flushDue) })
	s.workers.Go(func() { s.repeat(ctx, sweepInterval, "failed to remove expired records from the store", s.sweep) })
	s.workers.Go(func() { s.repeat(ctx, policyInterval, "failed to apply the rules of signing in", s.applyPolicy) })
	if _, ok := kv.(Compacter); ok {
		s.workers.Go(func() { s.repeat(ctx, sweepInterval, "failed to compact the store", s.compact) })
	}
	if s.own != s.shared {
		s.workers.Go(func() { s.repeat(ctx, publishInterval, "failed to publish the usage", s.PublishUsage) })
	}
	s.workers.Go(func() { s.repeat(ctx, sweepInterval, "failed to remove old usage and audit entries", s.sweepOld) })
	return s, nil
}

// newStore returns a store with an empty view.
func newStore(kv KV, o Options) *Store {
	s := &Store{
		shared: kv, own: cmp.Or(o.Own, kv), edge: cmp.Or(o.Edge, localEdge),
		cluster: cmp.Or[Cluster](o.Cluster, alone{}), touchInterval: touchIntervalAlone,
		log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), now: o.Now,
		refreshPace: rate.NewLimiter(rate.Every(refreshPause), 1), auditAdded: make(map[string]int),
	}
	if o.Edge != "" {
		s.touchInterval = touchIntervalShared
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.view.Store(new(view))
	s.policy.Store(new(SignInPolicy))
	s.appliedPolicy = s.policy.Load() // sessions stay until a configuration is loaded
	return s
}

// repeat calls f now and after each interval, until the context ends.
func (s *Store) repeat(ctx context.Context, interval time.Duration, failure string, f func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		func() {
			defer panics.Recover(s.log, "regular work on the store")
			if err := f(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn(failure, "error", err)
			}
		}()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

const (
	closeTime  = 5 * time.Second // for the last writes
	answerTime = 2 * time.Second // for an answer of the shared KV before the last writes
)

// Stopping closes the shared KV if that does not answer, so that the last writes and Close do not wait for
// it. Usage is then published after the next start.
func (s *Store) Stopping() {
	if s.own == s.shared {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	if _, err := s.shared.Get(ctx, accountKind.path("", DefaultAccount)); err != nil {
		s.log.Warn("the store does not answer; stopping without it: the last times of use are lost", "error", err)
		s.sharedClosed = true
		_ = s.shared.Close()
	}
}

// Close saves pending times of use and closes the KV. Running requests can still read the
// last view; writes fail with ErrClosed.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return ErrClosed
	}
	s.progress.Now()
	s.stop()
	s.workers.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if s.sharedClosed {
		return s.own.Close()
	}
	err := s.flush(ctx, 0)
	if s.own != s.shared {
		err = errors.Join(err, s.PublishUsage(ctx), s.own.Close())
	}
	return errors.Join(err, s.shared.Close())
}

// time returns the current time as stored in records: UTC, in whole milliseconds.
func (s *Store) time() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

// Edge returns the name of this gateway among those that share the KV, see [Options].
func (s *Store) Edge() string { return s.edge }

// Subscribe calls f for each change of a record with a Change.Kind, after reads show it
// and before its write returns. f must return soon and must not write to the store. stop
// ends the subscription; a call that has already begun may still be running.
func (s *Store) Subscribe(f func(Change)) (stop func()) { return s.subscribers.Add(f) }
