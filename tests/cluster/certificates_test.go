package cluster

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/postern-dev/postern/caddymodule/cluster/certstore"
	"github.com/postern-dev/postern/caddymodule/cluster/etcd"
	"github.com/postern-dev/postern/tests/harness"
)

// certificates are the certificates of one gateway, behind a line to etcd of its own.
type certificates struct {
	*certstore.Storage
	line *proxy
}

func newCertificates(t testing.TB, s *server, files string) *certificates {
	t.Helper()
	c := &certificates{line: newProxy(t, s)}
	c.Storage = openCertificates(c.line.url, files)
	t.Cleanup(func() {
		if err := c.Destruct(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func openCertificates(url, files string) *certstore.Storage {
	return &certstore.Storage{
		Open:   etcd.Options{Endpoints: []string{url}}.Connect,
		Copies: certmagic.FileStorage{Path: files},
		Logger: slog.New(slog.DiscardHandler),
	}
}

// setAway cuts the line to etcd, or ends that.
func (c *certificates) setAway(away bool) {
	c.line.refuse.Store(away)
	c.line.cut()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// holds fails the test unless a file has the content; "" means that it does not exist.
func (c *certificates) holds(t testing.TB, key, want string) {
	t.Helper()
	got, err := c.Load(t.Context(), key)
	if err != nil && (want != "" || !errors.Is(err, fs.ErrNotExist)) || string(got) != want {
		t.Errorf("%s: %q, %v, want %q", key, got, err, want)
	}
}

// TestCertificatesLikeFiles compares the storage with that of certmagic in files.
func TestCertificatesLikeFiles(t *testing.T) {
	t.Parallel()
	s := start(t, 1)[0]
	a, b := newCertificates(t, s, t.TempDir()), newCertificates(t, s, t.TempDir())
	files := &certmagic.FileStorage{Path: t.TempDir()}
	ctx := t.Context()
	same := func(what string, got, want any, err, wantErr error) {
		t.Helper()
		if (err == nil) != (wantErr == nil) || errors.Is(err, fs.ErrNotExist) != errors.Is(wantErr, fs.ErrNotExist) ||
			err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v, want %v, %v", what, got, err, want, wantErr)
		}
	}
	both := func(f func(s certmagic.Storage) error) {
		t.Helper()
		must(t, f(files))
		must(t, f(a))
		for _, key := range []string{"a", "a/b", "a/b/x.crt", "a/b/y.key", "a/bb/z.crt", "top.json", "nothing/here"} {
			want, wantErr := files.Stat(ctx, key)
			data, dataErr := files.Load(ctx, key)
			for _, s := range []*certificates{a, b} {
				got, err := s.Stat(ctx, key)
				if got.IsTerminal && (time.Since(got.Modified) > time.Hour || got.Size != want.Size) {
					t.Errorf("%s: %+v, want %+v", key, got, want)
				}
				same("stat "+key, got.IsTerminal, want.IsTerminal, err, wantErr)
				if s.Exists(ctx, key) != (wantErr == nil) {
					t.Errorf("exists %s: %v", key, wantErr != nil)
				}
				if wantErr != nil || want.IsTerminal {
					got, err := s.Load(ctx, key)
					same("load "+key, string(got), string(data), err, dataErr)
				}
			}
		}
		for _, folder := range []string{"", "a", "a/b", "a/bb", "nothing"} {
			for _, recursive := range []bool{false, true} {
				want, wantErr := files.List(ctx, folder, recursive)
				got, err := b.List(ctx, folder, recursive)
				if folder != "" || len(want) > 0 {
					same("list "+folder, got, want, err, wantErr)
				}
			}
		}
	}
	for key, value := range map[string]string{"a/b/x.crt": "1", "a/b/y.key": "22", "a/bb/z.crt": "333", "top.json": ""} {
		both(func(s certmagic.Storage) error { return s.Store(ctx, key, []byte(value)) })
	}
	both(func(s certmagic.Storage) error { return s.Store(ctx, "a/b/x.crt", []byte("new")) })
	for _, key := range []string{"a/b/y.key", "nothing/here", "a/b", "a"} {
		both(func(s certmagic.Storage) error { return s.Delete(ctx, key) })
	}
}

// TestCertificatesAway reads with a gateway that cannot reach etcd, before and after a restart.
func TestCertificatesAway(t *testing.T) {
	t.Parallel()
	s, ctx := start(t, 1)[0], t.Context()
	folder := t.TempDir()
	a, b := newCertificates(t, s, t.TempDir()), newCertificates(t, s, folder)
	for _, key := range []string{"dir/written", "dir/read", "dir/unread", "dir/deleted"} {
		must(t, a.Store(ctx, key, []byte("old")))
	}
	must(t, b.Store(ctx, "dir/written", []byte("new")))
	b.holds(t, "dir/read", "old")
	b.holds(t, "dir/deleted", "old")
	must(t, a.Delete(ctx, "dir/deleted"))
	b.holds(t, "dir/deleted", "")
	info, err := os.Stat(filepath.Join(folder, "dir", "read"))
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the copy: %v, %v, want one for its user only", info, err)
	}

	b.setAway(true)
	restarted := newCertificates(t, s, folder)
	restarted.setAway(true)
	for _, e := range []*certificates{b, restarted} {
		e.holds(t, "dir/written", "new")
		e.holds(t, "dir/read", "old")
		var calls sync.WaitGroup
		for what, call := range map[string]func() error{
			"load unread":  func() error { return second(e.Load(ctx, "dir/unread")) },
			"load deleted": func() error { return second(e.Load(ctx, "dir/deleted")) },
			"list":         func() error { return second(e.List(ctx, "dir", true)) },
			"try to lock":  func() error { return second(e.TryLock(ctx, "x")) },
			"lock":         func() error { return e.Lock(ctx, "x") },
			"store":        func() error { return e.Store(ctx, "dir/read", []byte("lost")) },
		} {
			calls.Go(func() {
				if err := call(); err == nil || errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %v, want another error than a missing file", what, err)
				}
			})
		}
		calls.Wait()
		e.holds(t, "dir/read", "old")
	}
	must(t, a.Store(ctx, "dir/read", []byte("newer")))
	for _, e := range []*certificates{b, restarted} {
		e.setAway(false)
		harness.Poll(t, patience, "etcd to be back", func(ctx context.Context) error { return e.Lock(ctx, "y") })
		must(t, e.Unlock(ctx, "y"))
		e.holds(t, "dir/read", "newer")
		e.holds(t, "dir/unread", "old")
		e.holds(t, "dir/deleted", "")
	}
}

// TestCertificateOfNewerVersion has a file that is neither used nor missing.
func TestCertificateOfNewerVersion(t *testing.T) {
	t.Parallel()
	all := start(t, 1)
	c := newCertificates(t, all[0], t.TempDir())
	must(t, c.Store(t.Context(), "b", nil))
	must(t, second(all.client(t).Put(t.Context(), "postern/x/acme/files/a", `{"v":2,"data":"QQ=="}`)))
	if data, err := c.Load(t.Context(), "a"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("load: %q, %v, want another error than a missing file", data, err)
	}
}
