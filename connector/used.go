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

// used is what `connector use` keeps of a client's file to restore it.
type used struct {
	Path     string      `json:"path"`
	Mode     fs.FileMode `json:"mode"`     // 0: the file did not exist
	Original []byte      `json:"original"` // with the first run's other keys
	Ours     [][]byte    `json:"ours"`     // hashes of the file as found and as written
	Changed  bool        `json:"changed"`  // somebody else changed it after a run
}

// settings is a settings file of a client, as it is.
type settings struct {
	clients.File
	path   string
	login  string // path of a sign-in elsewhere, "" none
	before []byte
	mode   fs.FileMode // 0: it does not exist
}

// settingsOf reads the settings files of a client.
func settingsOf(c clients.Client, getenv func(string) string) (all []settings, err error) {
	for _, f := range c.Files {
		folder := getenv(f.Env)
		if home := cmp.Or(getenv("HOME"), getenv("USERPROFILE")); f.Env == "" || !filepath.IsAbs(folder) {
			if folder = filepath.Join(home, filepath.FromSlash(f.Folder)); !filepath.IsAbs(folder) {
				return nil, errors.New("HOME is not set: the client's settings are unknown")
			}
		}
		s := settings{File: f}
		for _, name := range f.Paths {
			s.path = filepath.Join(folder, filepath.FromSlash(name))
			if _, err := os.Lstat(s.path); err == nil {
				break
			}
		}
		if login := filepath.Join(folder, f.Login); f.Login != "" {
			if _, err := os.Stat(login); err == nil {
				s.login = login
			}
		}
		if err := s.read(); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// read reads the file.
func (s *settings) read() error {
	if _, err := os.Lstat(s.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	info, err := os.Stat(s.path) // of the target of a symbolic link
	if err == nil {
		switch s.mode = info.Mode().Perm(); {
		case !info.Mode().IsRegular():
			err = fmt.Errorf("%s is not a file", s.path)
		case s.mode&0o200 == 0:
			err = fmt.Errorf("%s is marked as read-only; make it writable first", s.path)
		default:
			s.before, err = os.ReadFile(s.path)
		}
	}
	return err
}

// usedPath returns the file with what is kept for a client.
func usedPath(client string, getenv func(string) string) (string, error) {
	path := config.DefaultPath(getenv)
	if path == "" {
		return "", errors.New("no folder for configurations: HOME is not set")
	}
	return filepath.Join(filepath.Dir(path), "use", client+".json"), nil
}

// loadUsed reads what is kept; nothing if the file does not exist.
func loadUsed(path string) (all []used, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the copies of settings in %s: %w", path, err)
	}
	return all, nil
}

// writing returns the steps that write files: first the copies of the originals, then the files. The process may die
// between any two of them.
func writing(path string, kept []used, files []settings, after [][]byte) (steps []func() error) {
	steps = append(steps, nil)
	for i, f := range files {
		at := slices.IndexFunc(kept, func(u used) bool { return u.Path == f.path })
		if at < 0 {
			at = len(kept)
			kept = append(kept, used{Path: f.path, Mode: f.mode, Original: f.before, Ours: [][]byte{hash(f.before)}})
		}
		u := &kept[at]
		u.Changed = u.Changed || !u.ours(f.before)
		u.Ours = [][]byte{hash(u.Original), hash(f.before), hash(after[i])}
		steps = append(steps, func() error { return config.Replace(f.path, after[i], 0o600) }) // it has the key
	}
	steps[0] = func() error {
		data, err := json.Marshal(kept)
		if err != nil {
			return err
		}
		return config.Replace(path, data, 0o600)
	}
	return steps
}

func hash(text []byte) []byte {
	sum := sha256.Sum256(text)
	return sum[:]
}

// ours reports whether a text is the original, or what the command has written.
func (u used) ours(text []byte) bool {
	return slices.ContainsFunc(u.Ours, func(h []byte) bool { return bytes.Equal(h, hash(text)) })
}

// foreign reports whether the file has settings that restoring it would lose.
func (u used) foreign() bool {
	text, err := os.ReadFile(u.Path)
	return u.Changed || err == nil && !u.ours(text)
}

// restore restores the original file.
func (u used) restore() error {
	if u.Mode == 0 {
		if err := os.Remove(u.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(u.Path), 0o700); err != nil {
		return err
	}
	return config.Replace(u.Path, u.Original, u.Mode)
}
