package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// ErrPaired: the configuration file holds a tunnel token already.
var ErrPaired = errors.New("this connector is paired already")

// DefaultPath is where a paired connector keeps its configuration by
// default: postern/connector.json in the user's folder for
// configurations. It is empty if the environment has no such folder.
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

// Store is the configuration file of a connector that is paired. Its upstreams and
// routes are kept.
type Store struct {
	path  string
	force bool // replace a token too
}

// NewStore returns the store in the file at path, which need not exist yet. Only
// by force is a token in it replaced.
func NewStore(path string, force bool) *Store {
	return &Store{path: path, force: force}
}

// Path returns the file's path.
func (s *Store) Path() string { return s.path }

// Load returns the configuration in the file, the zero value if there is none.
// It fails with [ErrPaired] if the file holds a token that is to be kept.
// Relative paths in it stay so.
func (s *Store) Load() (Config, error) {
	data, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return Config{}, nil
	}
	c, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", s.path, err)
	}
	if c.TunnelToken != "" && !s.force {
		return Config{}, fmt.Errorf("%w: %s holds a tunnel token", ErrPaired, s.path)
	}
	return c, nil
}

// Prepare makes sure that the file can be written later, when a token that
// cannot be kept would be lost. It creates the file's folder.
func (s *Store) Prepare() error {
	staged, err := stage(target(s.path), nil, nil)
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return os.Remove(staged)
}

// Save writes the configuration, readable by the owner alone. The file is there
// as a whole, or as it was before. A token that came into it since Load is kept.
func (s *Store) Save(c Config) error {
	if _, err := s.Load(); err != nil {
		return err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(c); err != nil {
		return fmt.Errorf("encoding the configuration: %w", err)
	}
	return replace(target(s.path), text.Bytes(), nil)
}
