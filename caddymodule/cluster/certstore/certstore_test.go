package certstore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/postern-dev/postern/caddymodule/cluster/certstore"
	"github.com/postern-dev/postern/caddymodule/store"
)

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// TestLikeFiles compares the storage with that of certmagic in files.
func TestLikeFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.edge(""), r.edge("")
		files := &certmagic.FileStorage{Path: t.TempDir()}
		ctx := t.Context()
		compare := func(key string) {
			t.Helper()
			wantData, wantErr := files.Load(ctx, key)
			wantInfo, wantStatErr := files.Stat(ctx, key)
			for name, s := range map[string]certmagic.Storage{"the writer": a, "another gateway": b} {
				if data, err := s.Load(ctx, key); string(data) != string(wantData) || (err == nil) != (wantErr == nil) ||
					isMissing(wantErr) && !isMissing(err) {
					t.Errorf("%s loads %s: %q, %v, want %q, %v", name, key, data, err, wantData, wantErr)
				}
				info, err := s.Stat(ctx, key)
				if info.IsTerminal != wantInfo.IsTerminal || info.IsTerminal && info.Size != wantInfo.Size ||
					isMissing(err) != isMissing(wantStatErr) {
					t.Errorf("%s stats %s: %+v, %v, want %+v, %v", name, key, info, err, wantInfo, wantStatErr)
				}
				if info.IsTerminal && info.Modified.IsZero() {
					t.Errorf("%s does not know when %s was modified", name, key)
				}
				if got, want := s.Exists(ctx, key), files.Exists(ctx, key); got != want {
					t.Errorf("%s: exists %s: %v, want %v", name, key, got, want)
				}
			}
		}
		list := func(folder string) {
			t.Helper()
			for _, recursive := range []bool{false, true} {
				want, wantErr := files.List(ctx, folder, recursive)
				got, err := b.List(ctx, folder, recursive)
				if !reflect.DeepEqual(got, want) || isMissing(err) != isMissing(wantErr) {
					t.Errorf("list %q, recursive %v: %q, %v, want %q, %v", folder, recursive, got, err, want, wantErr)
				}
			}
		}
		both := func(f func(s certmagic.Storage) error) {
			t.Helper()
			r.must(f(files))
			r.must(f(a))
			for _, key := range []string{"a", "a/b", "a/b/x.crt", "a/b/y.key", "a/bb/z.crt", "top.json", "nothing/here"} {
				compare(key)
			}
			for _, folder := range []string{"", "a", "a/b", "a/bb", "nothing"} {
				list(folder)
			}
		}
		for key, value := range map[string]string{"a/b/x.crt": "1", "a/b/y.key": "22", "a/bb/z.crt": "333", "top.json": ""} {
			both(func(s certmagic.Storage) error { return s.Store(ctx, key, []byte(value)) })
		}
		both(func(s certmagic.Storage) error { return s.Store(ctx, "a/b/x.crt", []byte("new")) })
		for _, key := range []string{"a/b/y.key", "nothing/here", "a/b", "a"} {
			both(func(s certmagic.Storage) error { return s.Delete(ctx, key) })
		}
		for i := range store.MaxTxnOps + 5 {
			r.must(a.Store(ctx, fmt.Sprintf("many/%d/file", i), nil))
		}
		r.must(a.Delete(ctx, "many"))
		if b.Exists(ctx, "many") {
			t.Error("a large folder is still there")
		}
	})
}

// TestInvalidKeys has keys that would be files outside of the folder of copies, or all of it.
func TestInvalidKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		e := r.edge("")
		_, err := r.kv.Txn(t.Context(),
			store.Txn{Then: []store.Op{store.Put("x/acme/files/../x", nil), store.Put("x/acme/files/fine", nil)}})
		r.must(err)
		if keys, err := e.List(t.Context(), "", true); err != nil || !slices.Equal(keys, []string{"fine"}) {
			t.Errorf("list: %q, %v, want only valid keys", keys, err)
		}
		for _, key := range []string{"", ".", "..", "../x", "a/../../x", "/x", "a//b"} {
			_, loaded := e.Load(t.Context(), key)
			_, stat := e.Stat(t.Context(), key)
			for what, err := range map[string]error{
				"load": loaded, "stat": stat, "store": e.Store(t.Context(), key, nil),
				"delete": e.Delete(t.Context(), key),
			} {
				if !errors.Is(err, store.ErrInvalid) {
					t.Errorf("%s of %q: %v, want ErrInvalid", what, key, err)
				}
			}
		}
	})
}

// TestAway reads with a gateway that cannot reach the store, before and after a restart.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx := t.Context()
		a, b := r.edge(""), r.edge("")
		for _, key := range []string{"dir/written", "dir/read", "dir/unread", "dir/deleted"} {
			r.must(a.Store(ctx, key, []byte("old")))
		}
		r.must(b.Store(ctx, "dir/written", []byte("new")))
		for _, key := range []string{"dir/read", "dir/deleted"} {
			r.holds(b, key, "old")
		}
		r.must(a.Delete(ctx, "dir/deleted"))
		r.holds(b, "dir/deleted", "")

		restarted := r.edge(b.files)
		for _, e := range []*edge{b, restarted} {
			e.line.set(false)
			begin := time.Now()
			r.holds(e, "dir/written", "new")
			r.holds(e, "dir/read", "old")
			if time.Since(begin) > 5*time.Second {
				t.Errorf("reading two files took %s: only the first should wait for the store", time.Since(begin))
			}
			for _, key := range []string{"dir/unread", "dir/deleted"} {
				if _, err := e.Load(ctx, key); !errors.Is(err, store.ErrUnavailable) || isMissing(err) {
					t.Errorf("%s: %v, want ErrUnavailable", key, err)
				}
			}
			if keys, err := e.List(ctx, "dir", true); len(keys) != 2 || err != nil {
				t.Errorf("list: %q, %v, want what there are copies of", keys, err)
			}
			if info, err := e.Stat(ctx, "dir/read"); err != nil || !info.IsTerminal || !e.Exists(ctx, "dir") ||
				e.Exists(ctx, "dir/unread") {
				t.Errorf("stat: %+v, %v", info, err)
			}
			_, try := e.TryLock(ctx, "x")
			for what, err := range map[string]error{
				"store": e.Store(ctx, "dir/read", []byte("lost")), "delete": e.Delete(ctx, "dir/read"), "lock": e.Lock(ctx, "x"),
				"try to lock": try,
			} {
				if !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s: %v, want ErrUnavailable", what, err)
				}
			}
			r.holds(e, "dir/read", "old")
		}
		r.must(a.Store(ctx, "dir/read", []byte("newer")))
		for _, e := range []*edge{b, restarted} {
			e.line.set(true)
			r.must(e.Lock(ctx, "x")) // with which the store is known to be back
			r.must(e.Unlock(ctx, "x"))
			r.holds(e, "dir/read", "newer")
			r.holds(e, "dir/unread", "old")
			r.holds(e, "dir/deleted", "")
		}
	})
}

// TestSlowRead writes a file while another read of it is not complete.
func TestSlowRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		e := r.edge("")
		r.must(e.Store(t.Context(), "a", []byte("old")))
		e.line.got = func() { r.must(e.Store(t.Context(), "a", []byte("new"))) }
		r.holds(e, "a", "old")
		e.line.set(false)
		r.holds(e, "a", "new")
	})
}

func TestCopiesArePrivate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.edge(""), r.edge("")
		r.must(a.Store(t.Context(), "dir/key", []byte("secret")))
		r.holds(b, "dir/key", "secret")
		for _, e := range []*edge{a, b} {
			info, err := os.Stat(filepath.Join(e.files, "dir", "key"))
			r.must(err)
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("the copy has the mode %s", info.Mode())
			}
		}
	})
}

// TestNewerRecord has a file of a newer version: it is neither used nor missing.
func TestNewerRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		_, err := r.kv.Txn(t.Context(),
			store.Txn{Then: []store.Op{store.Put("x/acme/files/a", []byte(`{"v":2,"data":"QQ=="}`))}})
		r.must(err)
		if data, err := r.edge("").Load(t.Context(), "a"); !errors.Is(err, store.ErrSchema) {
			t.Errorf("load: %q, %v, want ErrSchema", data, err)
		}
	})
}

// TestUnused closes a storage that `caddy validate` has created.
func TestUnused(t *testing.T) {
	s := certstore.New(certstore.Options{Open: func(context.Context) (store.KV, error) {
		t.Error("the store is opened")
		return nil, store.ErrUnavailable
	}})
	if err := s.Destruct(); err != nil {
		t.Error(err)
	}
	if _, err := s.Load(t.Context(), "a"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("load: %v, want ErrClosed", err)
	}
}
