package localcopy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/store/localcopy"
	"github.com/postern-dev/postern/tests/storetest"
)

// TestConformance runs the tests of all KVs while the shared KV can be reached.
func TestConformance(t *testing.T) {
	t.Parallel()
	var paths sync.Map // of the KVs
	open := func(t *testing.T, path string) store.KV {
		kv, err := localcopy.Open(t.Context(), localcopy.Options{
			Open: func(context.Context) (store.KV, error) { return store.OpenBolt(path, store.BoltOptions{}) },
			Path: path + ".copy", Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kv.Close() })
		paths.Store(kv, path)
		return kv
	}
	storetest.RunKV(t, storetest.Backend{
		Open: func(t *testing.T) store.KV { return open(t, filepath.Join(t.TempDir(), "gateway.db")) },
		Reopen: func(t *testing.T, kv store.KV) store.KV {
			if err := kv.Close(); err != nil {
				t.Fatal(err)
			}
			path, _ := paths.Load(kv)
			return open(t, path.(string))
		},
	})
}

// rig is a shared KV that can be away, and the path of its copy.
type rig struct {
	*testing.T
	shared store.KV
	path   string
	away   atomic.Pointer[error] // of the next opening
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, path: filepath.Join(t.TempDir(), "copy.db")}
	r.shared = storetest.OpenBolt(t, filepath.Join(t.TempDir(), "shared.db"))
	return r
}

func (r *rig) fail(err error) { r.away.Store(&err) }

func (r *rig) open() (store.KV, error) {
	return localcopy.Open(r.Context(), localcopy.Options{
		Open: func(context.Context) (store.KV, error) {
			if err := r.away.Load(); err != nil && *err != nil {
				return nil, *err
			}
			return storetest.Share(r.shared), nil
		},
		Path: r.path, Logger: slog.New(slog.DiscardHandler),
	})
}

// store opens a store over the KV, until the test ends.
func (r *rig) store() *store.Store {
	r.Helper()
	kv, err := r.open()
	if err != nil {
		r.Fatal(err)
	}
	s, err := store.New(kv, store.Options{})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = s.Close() })
	return s
}

// TestStartFromCopy starts a store while the shared KV is away, and has it come back.
func TestStartFromCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx := t.Context()
		before := r.store()
		secret, err := before.Secret(ctx, "any", func() ([]byte, error) { return []byte("value"), nil })
		if err != nil {
			t.Fatal(err)
		}
		_, early, err := before.CreateKey(ctx, store.Key{Account: store.DefaultAccount, Name: "early", Scope: "*"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		revision := before.Revision()
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}

		r.fail(fmt.Errorf("%w: for a test", store.ErrUnavailable))
		s := r.store()
		if got := s.Revision(); got != revision {
			t.Errorf("the copy has revision %d, want %d", got, revision)
		}
		if _, ok := s.FindKey(early); !ok {
			t.Error("a key is unknown")
		}
		again, err := s.Secret(ctx, "any", func() ([]byte, error) { return nil, errors.New("it exists") })
		if err != nil || string(again) != string(secret) {
			t.Errorf("the secret is %q, %v", again, err)
		}
		_, _, createErr := s.CreateKey(ctx, store.Key{Account: store.DefaultAccount, Name: "late", Scope: "*"})
		_, catchUpErr := s.CatchUp(ctx)
		_, leaseErr := s.Lease(ctx, time.Minute)
		for what, err := range map[string]error{"a write": createErr, "catching up": catchUpErr, "a lease": leaseErr, "a backup": s.Backup(ctx, nil)} {
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s without the shared KV: %v", what, err)
			}
		}

		other, err := store.New(storetest.Share(r.shared), store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		_, late, err := other.CreateKey(ctx, store.Key{Account: store.DefaultAccount, Name: "late", Scope: "*"})
		if err != nil {
			t.Fatal(err)
		}
		r.fail(nil)
		time.Sleep(time.Minute)
		if _, ok := s.FindKey(late); !ok {
			t.Error("a key of another gateway is unknown when the shared KV is back")
		}
		if _, err := s.CatchUp(ctx); err != nil {
			t.Error(err)
		}
		if _, _, err := s.CreateKey(ctx, store.Key{Account: store.DefaultAccount, Name: "latest", Scope: "*"}); err != nil {
			t.Error(err)
		}
	})
}

// TestUnusableCopy has no start without a copy, with an old or damaged one, or after an error
// that a copy does not help against.
func TestUnusableCopy(t *testing.T) {
	away := fmt.Errorf("%w: for a test", store.ErrUnavailable)
	for name, c := range map[string]struct {
		spoil func(path string) error
		fail  error
		says  string
	}{
		"no copy":       {os.Remove, away, "for a test"},
		"old copy":      {func(path string) error { return os.Chtimes(path, time.Time{}, time.Now().Add(-2*time.Hour)) }, away, "too long ago"},
		"damaged":       {func(path string) error { return os.WriteFile(path, []byte("no database"), 0o600) }, away, "cannot be used"},
		"another error": {func(string) error { return nil }, store.Errorf(store.ErrSchema, "newer"), "newer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				s := r.store()
				time.Sleep(time.Minute)
				_ = s.Close()
				if info, err := os.Stat(r.path); err != nil || info.Mode().Perm() != 0o600 {
					t.Fatalf("the copy: %v, %v", info, err)
				}
				now := time.Now() // of the machine, unlike that of the test
				if err := os.Chtimes(r.path, now, now); err != nil {
					t.Fatal(err)
				}
				if err := c.spoil(r.path); err != nil {
					t.Fatal(err)
				}
				r.fail(c.fail)
				if _, err := r.open(); !errors.Is(err, c.fail) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("opening it: %v", err)
				}
			})
		})
	}
}
