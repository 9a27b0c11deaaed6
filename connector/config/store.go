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

// Store is the configuration file that a pairing writes. Its upstreams and routes are
// kept.
type Store struct {
	path  string
	force bool // replace an existing token
}

// NewStore returns the store in the file at path, which need not exist. An existing token
// is only replaced if force is set.
func NewStore(path string, force bool) *Store {
	return &Store{path: path, force: force}
}

// Path returns the file's path.
func (s *Store) Path() string { return s.path }

// Load returns the configuration in the file, or the zero value if it does not exist.
// It fails with [ErrPaired] if the file contains a token that must be kept. Relative
// paths stay relative.
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
		return Config{}, fmt.Errorf("%w: %s contains a tunnel token", ErrPaired, s.path)
	}
	return c, nil
}

// Prepare checks that the file can be written later, as a token that cannot be saved
// would be lost. It creates the file's folder.
func (s *Store) Prepare() error {
	staged, err := stage(target(s.path), nil, nil)
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return os.Remove(staged)
}

// Save atomically writes the configuration, readable only by its owner. It fails with
// [ErrPaired] if a token was added to the file since Load.
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
