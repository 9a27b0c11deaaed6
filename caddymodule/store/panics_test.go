package store

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/tests/rig/caught"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// brokenKV is a KV whose watch or read panics while it is broken.
type brokenKV struct {
	KV
	watching, reading atomic.Bool
}

func (kv *brokenKV) Watch(ctx context.Context, span Span, from int64) (Watcher, error) {
	w, err := kv.KV.Watch(ctx, span, from)
	return brokenWatcher{w, kv}, err
}

type brokenWatcher struct {
	Watcher
	kv *brokenKV
}

func (w brokenWatcher) Next(ctx context.Context) (Batch, error) {
	b, err := w.Watcher.Next(ctx)
	if w.kv.watching.Load() {
		panic(caught.Secret)
	}
	return b, err
}

func (kv *brokenKV) Each(ctx context.Context, span Span, f func(Item) error) (int64, error) {
	return kv.KV.Each(ctx, span, func(item Item) error {
		if kv.reading.Load() {
			panic(caught.Secret)
		}
		return f(item)
	})
}

// panickingStore returns a store, and its log.
func panickingStore(t *testing.T) (*Store, *brokenKV, *caught.Log) {
	t.Helper()
	kv, err := OpenBolt(filepath.Join(t.TempDir(), "gateway.db"), BoltOptions{})
	must(t, err)
	broken, log := &brokenKV{KV: kv}, caught.New()
	s, err := New(broken, Options{Logger: log.Logger})
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, broken, log
}

// credential returns a new key.
func credential(t *testing.T, s *Store, f KeyFields) Credential {
	t.Helper()
	f.Scope = "*"
	_, secret, err := s.CreateKey(t.Context(), DefaultAccount, f)
	must(t, err)
	c, ok := s.FindKey(secret)
	if !ok {
		t.Fatal("the key is not known")
	}
	return c
}

// After a panic of the watcher, or while the state is read again, the store accepts nothing and all
// requests end. Once the state can be read, it accepts requests again, and the write that caused
// the panic takes effect.
func TestPanicOfWatcher(t *testing.T) {
	s, kv, log := panickingStore(t)
	running := credential(t, s, KeyFields{Name: "running"})
	ended := make(chan Refusal, 1)
	running.Begin(netip.Addr{}, func(why Refusal) { ended <- why })
	before := panics.Total()
	kv.watching.Store(true)
	kv.reading.Store(true)
	written := make(chan error, 1)
	go func() {
		_, err := s.RevokeKey(context.WithoutCancel(t.Context()), DefaultAccount, running.ID())
		written <- err
	}()
	if why := wait.For(t, ended, "the request ends"); why != RefusedStore {
		t.Errorf("it ended with %q", why)
	}
	log.Expect(t, "following the store", 1)
	if err := s.Serving(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("the store accepts requests: %v", err)
	}
	if err := s.Refresh(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("the view counts as current: %v", err)
	}
	wait.Until(t, "reading the state panics, too", func() bool { return panics.Total() >= before+2 })
	if s.Serving() == nil {
		t.Error("the store accepts requests although it could not be read")
	}
	kv.watching.Store(false)
	kv.reading.Store(false)
	if err := wait.For(t, written, "the write returns"); err != nil {
		t.Error(err)
	}
	wait.Until(t, "the store accepts requests again", func() bool { return s.Serving() == nil })
	if why := running.Refusal(netip.Addr{}); why != RefusedRevoked {
		t.Errorf("the revoked key: %q", why)
	}
	_ = credential(t, s, KeyFields{Name: "later"})
}

// After a panic between a new view and its callbacks, the missing callbacks are called when the
// store is read again.
func TestPanicOfCallback(t *testing.T) {
	s, _, log := panickingStore(t)
	running := credential(t, s, KeyFields{Name: "running"})
	revoked, others := make(chan Change, 8), make(chan Refusal, 2)
	s.Subscribe(func(Change) { panic(caught.Secret) })
	s.Subscribe(func(c Change) {
		if c.ID == running.ID() && c.Removed {
			revoked <- c
		}
	})
	running.Begin(netip.Addr{}, func(why Refusal) { others <- why })
	running.Begin(netip.Addr{}, func(Refusal) { panic(caught.Secret) })
	running.Begin(netip.Addr{}, func(why Refusal) { others <- why })
	if _, err := s.RevokeKey(t.Context(), DefaultAccount, running.ID()); err != nil {
		t.Error(err)
	}
	for range 2 {
		wait.For(t, others, "the other requests of the key end")
	}
	log.Expect(t, "following the store", 1)
	wait.For(t, revoked, "the change is reported, after a subscriber has panicked")
	log.Expect(t, "reporting a change of the store", 1)
	wait.Until(t, "the store accepts requests again", func() bool { return s.Serving() == nil })
}

// After a panic in the expiry of keys, later keys still expire.
func TestPanicOfExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, kv, log := panickingStore(t)
		kv.reading.Store(true)
		soon := time.Now().Add(time.Second)
		first := credential(t, s, KeyFields{Name: "first", ExpiresAt: &soon})
		first.Begin(netip.Addr{}, func(Refusal) { panic(caught.Secret) })
		time.Sleep(expiryLook)
		synctest.Wait()
		log.Expect(t, "expiring keys", 1)
		if err := s.Serving(); !errors.Is(err, ErrUnavailable) {
			t.Errorf("the store accepts requests: %v", err)
		}
		kv.reading.Store(false)
		time.Sleep(2 * retryWatch)
		synctest.Wait()
		if err := s.Serving(); err != nil {
			t.Errorf("once the store was read again: %v", err)
		}
		soon = time.Now().Add(time.Second)
		next := credential(t, s, KeyFields{Name: "next", ExpiresAt: &soon})
		ended := make(chan Refusal, 1)
		next.Begin(netip.Addr{}, func(why Refusal) { ended <- why })
		time.Sleep(time.Second + expiryLook)
		if why := <-ended; why != RefusedExpired {
			t.Errorf("its request ended with %q", why)
		}
	})
}

// Repeated work continues after a panic.
func TestPanicOfRepeated(t *testing.T) {
	s, _, log := panickingStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	times := 0
	s.repeat(ctx, time.Millisecond, "failed", func(context.Context) error {
		if times++; times == 3 {
			cancel()
		}
		panic(caught.Secret)
	})
	log.Expect(t, "regular work on the store", 3)
}
