package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrPaired means that the configuration file already contains a tunnel token.
var ErrPaired = errors.New("this connector is already paired")

// DefaultPath returns the default path of a paired connector's configuration:
// postern/connector.json in the user's configuration folder. It is empty if the
// environment does not name that folder.
func DefaultPath(getenv func(string) string) string {
	var dir string
	switch {
	case filepath.IsAbs(getenv("XDG_CONFIG_HOME")):
		dir = getenv("XDG_CONFIG_HOME")
	case runtime.GOOS == "windows":
		dir = getenv("AppData")
	case getenv("HOME") == "":
	case runtime.GOOS == "darwin":
		dir = filepath.Join(getenv("HOME"), "Library", "Application Support")
	default:
		dir = filepath.Join(getenv("HOME"), ".config")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "postern", "connector.json")
}

// SystemPath returns the path of the configuration that install.sh writes for root, and that
// the service of the package reads. It is empty on Windows, which has neither.
func SystemPath() string {
	if runtime.GOOS == "windows" {
		return ""
	}
	return "/etc/postern/connector.json"
}

// Store is the configuration file that a pairing writes. A pairing does not change the file's
// upstreams and routes.
type Store struct {
	Path  string // of the file, which need not exist
	Force bool   // replace an existing token
}

// Load returns the configuration in the file, or the zero value if it does not exist.
// It fails with [ErrPaired] if the file contains a token that must be kept. Relative
// paths stay relative.
func (s *Store) Load() (Config, error) {
	data, err := os.ReadFile(s.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return Config{}, nil
	}
	c, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", s.Path, err)
	}
	if c.TunnelToken != "" && !s.Force {
		return Config{}, fmt.Errorf("%w: %s contains a tunnel token", ErrPaired, s.Path)
	}
	return c, nil
}

// Prepare creates the file's folder, and checks that Save can write there: a token that cannot
// be saved would be lost.
func (s *Store) Prepare() error {
	staged, err := stage(s.Path, nil, 0o600)
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.Path, err)
	}
	return os.Remove(staged)
}

// Save atomically writes the configuration, readable only by its owner. It fails with
// [ErrPaired] if a token was added to the file since Load.
func (s *Store) Save(c Config) error {
	if _, err := s.Load(); err != nil {
		return err
	}
	text, err := json.Marshal(c, jsontext.WithIndent("  "), json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encoding the configuration: %w", err)
	}
	return Replace(s.Path, append(text, '\n'), 0o600)
}

const (
	// stagedFiles is the pattern of the names of new files before they replace a configuration.
	stagedFiles = ".connector-new-*.json"
	// abandonedAfter is the age at which a staged file counts as abandoned.
	abandonedAfter = time.Minute
)

// realPath returns path with symbolic links resolved.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// Replace atomically writes a file with a mode. It follows symbolic links, and keeps the owner of an existing file.
func Replace(path string, text []byte, mode os.FileMode) error {
	staged, err := stage(path, text, mode)
	if err == nil {
		err = os.Rename(staged, realPath(path))
	}
	if err != nil {
		_ = os.Remove(staged)
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return syncFolder(path)
}

// RemoveStaged removes new files that did not replace the one at path, because a process was killed. They contain a
// token or a key. Files younger than age may be in use.
func RemoveStaged(path string, age time.Duration) {
	names, _ := filepath.Glob(filepath.Join(filepath.Dir(realPath(path)), stagedFiles)) // the pattern is valid
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && time.Since(info.ModTime()) >= age {
			_ = os.Remove(name)
		}
	}
}

// stage writes text to a new file next to the one at path, with a mode and the other file's owner. It also removes
// abandoned staged files.
func stage(path string, text []byte, mode os.FileMode) (name string, err error) {
	dir := filepath.Dir(realPath(path))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	RemoveStaged(path, abandonedAfter)
	file, err := os.CreateTemp(dir, stagedFiles) // with mode 0600
	if err != nil {
		return "", err
	}
	_, err = file.Write(text)
	if like, missing := os.Stat(path); err == nil && missing == nil {
		err = keepOwner(file, like, mode) // may clear bits of the mode
	}
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
}

// syncFolder makes a rename to path durable. Windows does not support that.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	folder, err := os.Open(filepath.Dir(realPath(path)))
	if err == nil {
		err = errors.Join(folder.Sync(), folder.Close())
	}
	return err
}
