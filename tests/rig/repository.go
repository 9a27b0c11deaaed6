package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Root returns the repository's folder: the nearest one above the working
// directory that holds xcaddy.sh.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the working directory: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "xcaddy.sh")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("finding the repository: no folder above holds xcaddy.sh")
		}
		dir = parent
	}
}

// Lock takes an exclusive lock on a file, across processes: tests of several
// packages run at the same time.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
