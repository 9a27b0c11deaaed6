package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// backUp writes a backup of s to a file.
func backUp(t *testing.T, s *store.Store) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "backup.db")
	var b bytes.Buffer
	must(t, s.Backup(t.Context(), &b))
	must(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

// A backup shows one moment of the store, even during writes: it has all keys up to one of them,
// and no later ones.
func TestBackupUnderWrites(t *testing.T) {
	s := storetest.New(t)
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { done <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, _, err := s.CreateKey(t.Context(),
				store.DefaultAccount, store.KeyFields{Name: fmt.Sprintf("key %d", n), Scope: "*"}); err != nil {
				t.Error(err)
				return
			}
			n++
		}
	}()
	var paths []string
	for len(paths) < 5 {
		paths = append(paths, backUp(t, s))
	}
	close(stop)
	created := <-done
	for _, path := range paths {
		must(t, errOf(store.CheckBackup(t.Context(), path)))
		restored, err := openStore(path)
		must(t, err)
		names := map[string]bool{}
		for _, k := range restored.Keys(store.DefaultAccount) {
			names[k.Name] = true
		}
		for n := range len(names) {
			if !names[fmt.Sprintf("key %d", n)] {
				t.Errorf("of %d keys, key %d is missing", len(names), n)
			}
		}
		if len(names) > created {
			t.Errorf("%d keys, of %d", len(names), created)
		}
		must(t, restored.Close())
	}
}

func TestRestore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "gateway.db")
	s, err := openStore(path)
	must(t, err)
	must(t, errOf(s.CreateKey(t.Context(),
		store.DefaultAccount, store.KeyFields{Name: "before", Scope: "*"})))
	backup := backUp(t, s)
	must(t, errOf(s.CreateKey(t.Context(),
		store.DefaultAccount, store.KeyFields{Name: "after", Scope: "*"})))
	now := time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)
	_, _, err = store.RestoreBolt(t.Context(), backup, path, now)
	wantError(t, err, store.ErrLocked, "stop that gateway first")
	must(t, s.Close())

	kept, info, err := store.RestoreBolt(t.Context(), backup, path, now)
	if err != nil || kept != path+".before-restore-20260502T120000.000" || info.Accounts != 1 || info.Revision == 0 ||
		info.Bytes == 0 {
		t.Fatalf("%q, %+v, %v", kept, info, err)
	}
	checkKeys(t, path, "before")
	checkKeys(t, kept, "after", "before")
	if stat, err := os.Stat(path); err != nil || stat.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", stat, err)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil || len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}

	elsewhere := filepath.Join(t.TempDir(), "new", "gateway.db")
	if kept, _, err := store.RestoreBolt(t.Context(), backup, elsewhere, now); err != nil || kept != "" {
		t.Fatalf("%q, %v", kept, err)
	}
	checkKeys(t, elsewhere, "before")
	// A damaged store can be replaced, too.
	must(t, os.WriteFile(elsewhere, []byte("not a store"), 0o600))
	must(t, errOf(store.RestoreBolt(t.Context(), backup, elsewhere, now)))
	checkKeys(t, elsewhere, "before")
}

// A gateway that starts during a restore waits for it, and opens the restored store.
func TestOpenDuringRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path, restored := filepath.Join(dir, "gateway.db"), filepath.Join(dir, "restored.db")
		for name, file := range map[string]string{"old": path, "restored": restored} {
			s, err := openStore(file)
			must(t, err)
			must(t, errOf(s.CreateKey(t.Context(),
				store.DefaultAccount, store.KeyFields{Name: name, Scope: "*"})))
			must(t, s.Close())
		}
		restoring, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true}) // as RestoreBolt locks it
		must(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			checkKeys(t, path, "restored")
		}()
		synctest.Wait() // it has opened the old file, and waits for the lock
		if err := errors.Join(os.Rename(restored, path), restoring.Close()); err != nil {
			t.Error(err)
		}
		<-done
	})
}

// checkKeys checks the names of the keys in a file.
func checkKeys(t *testing.T, path string, want ...string) {
	t.Helper()
	s, err := openStore(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	names := map[string]bool{}
	for _, k := range s.Keys(store.DefaultAccount) {
		names[k.Name] = true
	}
	for _, name := range want {
		if !names[name] || len(names) != len(want) {
			t.Errorf("%s has the keys %v, want %v", path, names, want)
		}
	}
}

// RestoreBolt refuses files that are not whole backups, and keeps the present store.
func TestRestoreRefuses(t *testing.T) {
	s := storetest.New(t)
	for n := range 50 {
		must(t, errOf(s.CreateKey(t.Context(),
			store.DefaultAccount, store.KeyFields{Name: fmt.Sprint(n), Scope: "*"})))
	}
	good, err := os.ReadFile(backUp(t, s))
	must(t, err)
	change := func(do func(tx *bolt.Tx) error) []byte {
		path := filepath.Join(t.TempDir(), "changed.db")
		must(t, os.WriteFile(path, good, 0o600))
		db, err := bolt.Open(path, 0o600, nil)
		must(t, err)
		must(t, errors.Join(db.Update(do), db.Close()))
		changed, err := os.ReadFile(path)
		must(t, err)
		return changed
	}
	zeroed := bytes.Clone(good)
	clear(zeroed[3*4096:])
	for name, c := range map[string]struct {
		content []byte
		part    string
	}{
		"empty":     {nil, "empty"},
		"text":      {[]byte(strings.Repeat("{}\n", 10000)), "not a Postern store"},
		"cut":       {good[:len(good)*2/3], "damaged"},
		"cut early": {good[:9000], "damaged"},
		"zeroed":    {zeroed, "damaged"},
		"other program": {change(func(tx *bolt.Tx) error {
			_, err := tx.CreateBucket([]byte("other"))
			return errors.Join(err, tx.DeleteBucket([]byte("meta")), tx.DeleteBucket([]byte("items")))
		}), "another program"},
		"no buckets": {change(func(tx *bolt.Tx) error {
			return errors.Join(tx.DeleteBucket([]byte("meta")), tx.DeleteBucket([]byte("items")))
		}), "empty database"},
		"newer schema": {change(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("meta")).Put([]byte("schema"), []byte{0, 0, 0, 0, 0, 0, 0, 9})
		}), "newer Postern"},
		"newer record": {change(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("items")).Put([]byte("accounts/x"), append(make([]byte, 24), `{"v":9}`...))
		}), "newer Postern"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			backup, path := filepath.Join(dir, "backup"), filepath.Join(dir, "gateway.db")
			must(t, errors.Join(os.WriteFile(backup, c.content, 0o600), os.WriteFile(path, good, 0o600)))
			_, _, err := store.RestoreBolt(t.Context(), backup, path, time.Now())
			wantError(t, err, store.ErrSchema, backup, c.part)
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, good) {
				t.Errorf("the store has changed: %v", err)
			}
			if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
				t.Errorf("the folder has %v, %v", files, err)
			}
		})
	}
}
