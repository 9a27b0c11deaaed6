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

// owner is the content of the owner file, which describes the process that has the
// store open. It is informational only: the lock is on the store itself.
type owner struct {
	PID     int       `json:"pid"`
	Program string    `json:"program"`
	Host    string    `json:"host"` // a pid is meaningless in another container
	Started time.Time `json:"started"`
}

func ownerPath(path string) string { return path + ".owner" }

// writeOwner is called with the store locked. It renames a complete file into place,
// so that readers never see a partial one. A file left by a killed process is replaced.
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

// lockedError is called after a timeout waiting for the lock. By then the owner has
// had time to replace the file of a killed process.
func lockedError(path string) error {
	return Errorf(ErrLocked, "the store %s is already open in %s: manage that running gateway instead of starting a second one "+
		"(with Caddy: caddy reload, caddy gateway …), stop it first, or choose another file for this one", path, describeOwner(path))
}

func describeOwner(path string) string {
	content, err := os.ReadFile(ownerPath(path))
	if err != nil {
		return fmt.Sprintf("another, unknown process (%v)", err)
	}
	var o owner
	if err := json.Unmarshal(content, &o); err != nil || o.PID <= 0 {
		return fmt.Sprintf("another, unknown process (%s is not readable)", ownerPath(path))
	}
	if o.PID == os.Getpid() {
		return fmt.Sprintf("this same process (pid %d)", o.PID)
	}
	return fmt.Sprintf("%q (pid %d on %s, since %s)", o.Program, o.PID, o.Host, o.Started.Format(time.RFC3339))
}
