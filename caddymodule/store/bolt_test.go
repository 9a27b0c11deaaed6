package store_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func hold(path string) error {
	kv, err := store.OpenBolt(path, store.BoltOptions{})
	if err != nil {
		return err
	}
	os.Stdout.WriteString("held\n")
	os.Stdin.Read(make([]byte, 1)) // until the parent closes it
	return kv.Close()
}

func TestBoltLockedByAnotherProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	cmd, stdin, lines := startChild(t, "hold", path)
	if line := <-lines; line != "held" {
		t.Fatalf("the child says %q", line)
	}
	quick := store.BoltOptions{LockTimeout: 100 * time.Millisecond}
	_, err := store.OpenBolt(path, quick)
	wantError(t, err, store.ErrLocked, path, "in another process", "caddy reload")

	// It waits for a process that is about to exit.
	time.AfterFunc(50*time.Millisecond, func() { stdin.Close() })
	storetest.OpenBolt(t, path)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestBoltLockedByThisProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	kv := storetest.OpenBolt(t, path)
	_, err := store.OpenBolt(path, store.BoltOptions{LockTimeout: 100 * time.Millisecond})
	wantError(t, err, store.ErrLocked, "already open, here")
	must(t, kv.Close())
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("beside the store are %v, %v", files, err)
	}
}

func TestBoltFileModes(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		return // it has no modes
	}
	path := filepath.Join(t.TempDir(), "new", "dir", "gateway.db")
	kv := storetest.OpenBolt(t, path)
	for name, want := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	must(t, kv.Close())
	must(t, os.Chmod(path, 0o644))
	storetest.OpenBolt(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a file of mode 644 became %v, %v", info.Mode(), err)
	}
}

// OpenBolt refuses files of other programs, and does not change them.
func TestBoltSchema(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bolt.Tx) error
		want   []string
	}{
		"newer": {func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("meta")).Put([]byte("schema"), binary.BigEndian.AppendUint64(nil, 2))
		}, []string{"schema version 2", "supports only 1", "newer Postern"}},
		"foreign with meta": {func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("meta")).Delete([]byte("schema"))
		}, []string{"another program"}},
		"foreign": {func(tx *bolt.Tx) error {
			if _, err := tx.CreateBucket([]byte("mercure")); err != nil {
				return err
			}
			return tx.DeleteBucket([]byte("meta"))
		}, []string{"another program"}},
		"part missing": {
			func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("items")) },
			[]string{`the bucket "items" is missing`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "gateway.db")
			change(t, path, c.change)
			before, err := os.ReadFile(path)
			must(t, err)
			wantError(t, errOf(store.OpenBolt(path, store.BoltOptions{})), store.ErrSchema, append(c.want, path)...)
			if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
				t.Errorf("the file was changed: %v", err)
			}
			storetest.CheckFile(t, path) // and is not locked
		})
	}
}

// change creates a store at path and calls f with its database.
func change(t *testing.T, path string, f func(*bolt.Tx) error) {
	t.Helper()
	s, err := openStore(path)
	must(t, err)
	must(t, s.Close())
	db, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, errors.Join(db.Update(f), db.Close()))
}

func TestBoltNoDatabase(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"text": "hello", "long text": strings.Repeat("hello", 10000), "zeros": strings.Repeat("\x00", 1<<16),
	} {
		path := filepath.Join(t.TempDir(), "gateway.db")
		must(t, os.WriteFile(path, []byte(content), 0o600))
		_, err := store.OpenBolt(path, store.BoltOptions{})
		if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "is not a Postern store") {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != content {
			t.Errorf("%s: the file was changed: %v", name, err)
		}
	}
	dir := t.TempDir()
	if _, err := store.OpenBolt(dir, store.BoltOptions{}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("opening a directory: %v", err)
	}
	if _, err := store.OpenBolt(filepath.Join(os.DevNull, "x"), store.BoltOptions{}); err == nil {
		t.Error("opened a file within a file")
	}
}

// A process that is killed while it creates the file may leave a database without buckets.
func TestBoltUnfinishedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	db, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Close())
	storetest.Open(t, path)
}

// Past transactions occupy a bounded number of bytes, whether they are small or large.
func TestBoltWatcherTooSlow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ history, value int }{{1 << 10, 0}, {0, 512 << 10}} {
		kv, err := store.OpenBolt(filepath.Join(t.TempDir(), "gateway.db"), store.BoltOptions{History: c.history})
		must(t, err)
		defer kv.Close()
		slow, err := kv.Watch(t.Context(), store.Span{}, 0)
		must(t, err)
		var last store.TxnResult
		for range 20 {
			if last, err = kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("a", make([]byte, c.value))}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := slow.Next(t.Context()); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("%+v: next of a watcher 20 behind: %v", c, err)
		}
		if _, err := kv.Watch(t.Context(), store.Span{}, last.Revision-6); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("%+v: watch from 6 back: %v", c, err)
		}
		recent, err := kv.Watch(t.Context(), store.Span{}, last.Revision-2)
		must(t, err)
		if batch, err := recent.Next(t.Context()); err != nil || batch.Revision != last.Revision-2 {
			t.Errorf("%+v: next from 2 back: revision %d, %v", c, batch.Revision, err)
		}
	}
}

// wantError checks kind and text of an error that a user will read.
func wantError(t *testing.T, err, kind error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("error %v, want %v", err, kind)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q, want one with %q", err, p)
		}
	}
}
