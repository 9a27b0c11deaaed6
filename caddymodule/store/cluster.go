package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/panics"
)

// Cluster knows the other gateways that share the KV. Package cluster implements it.
type Cluster interface {
	// Reached is called when all changes up to revision have taken effect here. revision is that of the latest change
	// that edges confirm, 0 before the first. Reached must return at once.
	Reached(revision int64)
	// Confirm waits until no edge acts on the state before revision. It fails with an
	// *Unconfirmed error if that takes too long.
	Confirm(ctx context.Context, revision int64) error
	// Serving fails with ErrUnavailable while this gateway may have missed changes that other
	// gateways consider to be in force everywhere.
	Serving() error
	// MayRun reports whether running requests may go on: if it does not, they are about to be cut.
	MayRun() bool
	// InContact reports whether this gateway has lately had contact to the KV.
	InContact() bool
	// Leader reports whether this gateway performs the duties of one gateway for all.
	Leader() bool
}

// ErrUnconfirmed is the kind of an Unconfirmed error.
var ErrUnconfirmed = errors.New("not confirmed by all edges")

// Unconfirmed is the error of a write that was committed, but not confirmed by some edges.
type Unconfirmed struct {
	Pending []PendingEdge
}

// PendingEdge is an edge that may act on the state before a write.
type PendingEdge struct {
	Edge  string    `json:"edge"`
	Until time.Time `json:"accepts_nothing_after"` // when it refuses all requests at the latest
}

func (u *Unconfirmed) Error() string {
	var b strings.Builder
	b.WriteString("the change is made, but not confirmed by all edges of the cluster: ")
	for i, p := range u.Pending {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p.Edge + " has not answered, and without the store it accepts nothing after " +
			p.Until.UTC().Format(time.RFC3339))
	}
	return b.String()
}

func (u *Unconfirmed) Unwrap() error { return ErrUnconfirmed }

// Committed reports whether a write that returned err was committed.
func Committed(err error) bool { return err == nil || errors.Is(err, ErrUnconfirmed) }

// confirmed makes the write wait until all edges have confirmed it.
func (t *tx) confirmed() {
	if t.s.Shared() {
		t.confirm = true
		t.mark(markConfirmed)
	}
}

// Revision returns the revision of the view.
func (s *Store) Revision() int64 { return s.view.Load().revision }

// Leads reports whether this gateway performs the duties of one gateway for all.
func (s *Store) Leads() bool { return s.cluster.Leader() }

// alone is the Cluster of a gateway whose KV is its own.
type alone struct{}

func (alone) Reached(int64)                        {}
func (alone) Confirm(context.Context, int64) error { return nil }
func (alone) Serving() error                       { return nil }
func (alone) MayRun() bool                         { return true }
func (alone) InContact() bool                      { return true }
func (alone) Leader() bool                         { return true }

// InContact reports whether this gateway has lately had contact to a store that it shares.
func (s *Store) InContact() bool { return s.cluster.InContact() }

// Shared reports whether other gateways may use the store.
func (s *Store) Shared() bool { return s.cluster != Cluster(alone{}) }

// Serving fails with ErrUnavailable while this gateway may have missed changes, such as
// revoked keys, and must not accept requests.
func (s *Store) Serving() error {
	if s.broken.Load() {
		return errBroken
	}
	return s.cluster.Serving()
}

// MayRun reports whether running requests may go on. If it does not, [Store.CutRequests] is about to end them: a
// process that was suspended asks before it passes an answer that has waited.
func (s *Store) MayRun() bool { return s.cluster.MayRun() }

// sharedTimeout bounds calls of the shared KV, which waits for its servers forever. These elect
// a leader within a few seconds.
const sharedTimeout = 10 * time.Second

// withSharedTimeout returns a context for calls of the shared KV.
func (s *Store) withSharedTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if !s.Shared() {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, sharedTimeout)
}

const (
	refreshTimeout = 250 * time.Millisecond // of Refresh
	refreshPause   = 50 * time.Millisecond  // between two refreshes
)

// Refresh is CatchUp for a caller that has not found a record. If the gateway is alone, it returns at once. It takes at
// most 250 ms, and all calls together access the KV at most 20 times a second. If it fails, the record may exist; the
// error is an ErrUnavailable with a message for the user.
func (s *Store) Refresh(ctx context.Context) error {
	if s.broken.Load() { // the view may lack the latest changes
		return errBroken
	}
	if !s.Shared() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	select {
	case result := <-s.refreshes.DoChan("", s.refresh):
		return result.Err
	case <-ctx.Done():
		return errUnreachable
	}
}

// FindFresh calls find, and again after a Refresh if it finds nothing: another gateway may just have created it.
func FindFresh[K, T any](ctx context.Context, s *Store, key K, find func(K) (T, bool)) (found T, ok bool, err error) {
	if found, ok = find(key); ok {
		return found, true, nil
	}
	if err = s.Refresh(ctx); err == nil {
		found, ok = find(key)
	}
	return found, ok, err
}

var errUnreachable = Errorf(ErrUnavailable,
	"this gateway cannot reach its store now: try again, or use another gateway")

// refresh catches up for all calls of Refresh before it begins. Later calls need another
// refresh, since this one may already have read the KV.
func (s *Store) refresh() (_ any, err error) {
	defer panics.Recover(s.log, "reading the changes of other gateways")
	err = errUnreachable // also after a panic
	if s.refreshPace.Wait(s.ctx) != nil {
		return nil, err
	}
	s.refreshes.Forget("")
	ctx, cancel := context.WithTimeout(s.ctx, refreshTimeout)
	defer cancel()
	if err := s.CatchUp(ctx); err != nil {
		s.log.Debug("failed to read the changes of other gateways", "error", err)
		return nil, errUnreachable
	}
	return nil, nil
}
