package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// owner is the content of the file next to the store that shows people who
// has it open. The lock on the store itself decides; this only explains it.
type owner struct {
	PID     int       `json:"pid"`
	Program string    `json:"program"`
	Host    string    `json:"host"` // since a pid is of no help in another container
	Started time.Time `json:"started"`
}

func ownerPath(path string) string { return path + ".owner" }

// writeOwner is called with the store locked. It renames a complete file into
// place, so that half of one is never read; what a killed process left behind
// is replaced.
func writeOwner(path string, now time.Time) error {
	o := owner{PID: os.Getpid(), Program: "unknown program", Started: now.UTC().Truncate(time.Second)}
	if exe, err := os.Executable(); err == nil {
		o.Program = filepath.Base(exe)
	}
	if host, err := os.Hostname(); err == nil {
		o.Host = host
	}
	content, err := json.Marshal(o)
	if err != nil {
		return err
	}
	temp := ownerPath(path) + ".new"
	if err := os.WriteFile(temp, append(content, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, ownerPath(path))
}

func removeOwner(path string) error {
	if err := os.Remove(ownerPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}

// lockedError is called after waiting for the lock in vain. By then its owner
// has had the time to write its file, so that a name left behind by a process
// that was killed does not mislead.
func lockedError(path string) error {
	return Errorf(ErrLocked, "the store %s is already open in %s: manage that running gateway instead of starting a second one "+
		"(with Caddy: caddy reload, caddy gateway …), or stop it first, or name another file for this one", path, describeOwner(path))
}

func describeOwner(path string) string {
	content, err := os.ReadFile(ownerPath(path))
	if err != nil {
		return fmt.Sprintf("another process (which one is unknown: %v)", err)
	}
	var o owner
	if err := json.Unmarshal(content, &o); err != nil || o.PID <= 0 {
		return fmt.Sprintf("another process (which one is unknown: %s is not readable)", ownerPath(path))
	}
	if o.PID == os.Getpid() {
		return fmt.Sprintf("this same process (pid %d)", o.PID)
	}
	return fmt.Sprintf("%q (pid %d on %s, since %s)", o.Program, o.PID, o.Host, o.Started.Format(time.RFC3339))
}
