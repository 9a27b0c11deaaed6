package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/postern-dev/postern/connector/clients"
	"github.com/postern-dev/postern/connector/config"
)

// settings is the settings file of a client, as it is, and what is kept to restore it.
type settings struct {
	*clients.File
	path   string
	login  string // path of a sign-in elsewhere, "" none
	before []byte
	mode   fs.FileMode // 0: it does not exist
	kept   string      // path of the file with used
	used   used
}

// used is what `connector use` keeps of a client's file to restore it.
type used struct {
	Path     string      `json:"path"`     // "": nothing is kept
	Mode     fs.FileMode `json:"mode"`     // 0: the file did not exist
	Original []byte      `json:"original"` // with the first run's other keys
	Ours     [][]byte    `json:"ours"`     // hashes of its texts that can be replaced without a loss
}

// settingsOf finds the settings file of a client, and what is kept of it.
func settingsOf(c clients.Client, getenv func(string) string) (*settings, error) {
	s := &settings{File: c.File}
	home := cmp.Or(getenv("HOME"), getenv("USERPROFILE"))
	kept := config.DefaultPath(getenv)
	folder := getenv(s.Env)
	if s.Env == "" || !filepath.IsAbs(folder) {
		folder = filepath.Join(home, filepath.FromSlash(s.Folder))
	}
	if !filepath.IsAbs(folder) || kept == "" {
		return nil, errors.New("HOME is not set: the client's settings are unknown")
	}
	for _, name := range s.Paths {
		s.path = filepath.Join(folder, filepath.FromSlash(name))
		if _, err := os.Lstat(s.path); err == nil {
			break
		}
	}
	if login := filepath.Join(folder, s.Login); s.Login != "" {
		if _, err := os.Stat(login); err == nil {
			s.login = login
		}
	}
	s.kept = filepath.Join(filepath.Dir(kept), "use", c.ID+".json")
	data, err := os.ReadFile(s.kept)
	if err == nil {
		err = json.Unmarshal(data, &s.used)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the copy of the settings in %s: %w", s.kept, err)
	}
	return s, nil
}

// read reads the file, which may be a symbolic link.
func (s *settings) read() error {
	s.before, s.mode = nil, 0
	if _, err := os.Lstat(s.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	s.mode = info.Mode().Perm()
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", s.path)
	case s.mode&0o200 == 0:
		return fmt.Errorf("%s is marked as read-only; make it writable first", s.path)
	}
	s.before, err = os.ReadFile(s.path)
	return err
}

// prepare checks that the files can be written.
func (s *settings) prepare() error {
	if s.used.Path != "" && s.used.Path != s.path {
		return fmt.Errorf("`connector use` has set up this client in %s; undo that first, with --undo", s.used.Path)
	}
	return errors.Join((&config.Store{Path: s.kept}).Prepare(), (&config.Store{Path: s.path}).Prepare())
}

// write sets the client up. Another program may have changed the file since it was shown.
func (s *settings) write(v clients.Values) error {
	if err := s.read(); err != nil {
		return err
	}
	after, _, err := s.Format.Merge(s.before, s.Members(v))
	if err == nil {
		err = s.keep(after)
	}
	if err == nil {
		err = config.Replace(s.path, after, 0o600) // it has the key
	}
	return err
}

// keep keeps the original before the file is replaced: the process may die in between.
func (s *settings) keep(after []byte) error {
	if s.used.Path == "" {
		s.used = used{Path: s.path, Mode: s.mode, Original: s.before, Ours: [][]byte{hash(s.before)}}
	}
	if s.ours() { // otherwise, the new text has changes of others, too
		s.used.Ours = append(s.used.Ours, hash(after))
	}
	data, err := json.Marshal(s.used)
	if err != nil {
		return err
	}
	return config.Replace(s.kept, data, 0o600)
}

func hash(text []byte) []byte {
	sum := sha256.Sum256(text)
	return sum[:]
}

// ours reports whether the file is the original, or what the command has written.
func (s *settings) ours() bool {
	return slices.ContainsFunc(s.used.Ours, func(h []byte) bool { return bytes.Equal(h, hash(s.before)) })
}

// restore restores the original file.
func (s *settings) restore() error {
	err := s.prepare() // makes the folder
	switch {
	case err != nil:
		return err
	case s.used.Mode != 0:
		err = config.Replace(s.path, s.used.Original, s.used.Mode)
	case s.mode != 0:
		err = os.Remove(s.path)
	}
	if err != nil {
		return err
	}
	return os.Remove(s.kept)
}
