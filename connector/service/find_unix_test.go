//go:build unix

package service

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/rig/wait"
)

// Files of other users cannot block the superuser.
func TestReadOnlyFiles(t *testing.T) {
	folder := t.TempDir()
	pipe, device, large := filepath.Join(folder, "pipe"), filepath.Join(folder, "device"), filepath.Join(folder, "large")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", device); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, make([]byte, maxDescription+1), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, device, large} {
		done := make(chan error, 1)
		go func() {
			_, err := read(path)
			done <- err
		}()
		if err := wait.For(t, done, "the end of reading "+path); err == nil {
			t.Errorf("%s is read", path)
		}
	}
}
