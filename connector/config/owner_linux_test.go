package config

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// TestPrepareAsUser tests files of others in an own folder: Prepare fails before a token is lost.
func TestPrepareAsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act for two users")
	}
	const user, other = 12345, 12346
	dir := t.TempDir()
	prepare := func(name string, uid, gid int) (err error) {
		path := filepath.Join(dir, name)
		writeFile(t, path, "{}")
		if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chown(dir, user, user),
			os.Chown(path, uid, gid)); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // and end the thread: the user is one of the thread
			if err = errors.Join(syscall.Setfsgid(user), syscall.Setfsuid(user)); err == nil {
				err = (&Store{Path: path}).Prepare()
			}
		}()
		<-done
		return err
	}
	wantText(t, prepare("owner", other, user), dir, ": it belongs to the user 12346; change its owner with chown")
	if err := prepare("group", user, other); err != nil {
		t.Errorf("another group: %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 2 {
		t.Errorf("left: %v", files)
	}
}
