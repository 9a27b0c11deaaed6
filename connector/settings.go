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

	"github.com/postern-dev/postern/connector/clients"
	"github.com/postern-dev/postern/connector/config"
)

// settings is the settings file of a client, and its backup.
type settings struct {
	*clients.File
	path       string
	before     []byte
	mode       fs.FileMode // 0: it does not exist
	backupPath string
	backup     backup
}

// backup is what `connector use` keeps of a client's file to restore it.
type backup struct {
	Path     string      `json:"path"`     // "": nothing is kept
	Mode     fs.FileMode `json:"mode"`     // 0: the file did not exist
	Original []byte      `json:"original"` // may contain other keys
	Written  [32]byte    `json:"written"`  // hash of the last text with only the command's changes
	KeyName  string      `json:"key_name"`
}

// settingsOf finds and reads the settings file of a client and its backup; with undo, the file that was set up.
func settingsOf(c clients.Client, getenv func(string) string, undo bool) (*settings, error) {
	s := &settings{File: c.File}
	home := cmp.Or(getenv("HOME"), getenv("USERPROFILE"))
	configPath := config.DefaultPath(getenv)
	folder := getenv(s.Env)
	if s.Env == "" || !filepath.IsAbs(folder) {
		folder = filepath.Join(home, filepath.FromSlash(s.Folder))
	}
	if !filepath.IsAbs(folder) || configPath == "" {
		return nil, errors.New("HOME is not set: the client's settings are unknown")
	}
	if info, err := os.Stat(home); err == nil && os.Geteuid() == 0 && !ownedByUser(info) {
		return nil, fmt.Errorf("HOME is %s, which belongs to another user: run this as that user, without sudo", home)
	}
	for _, name := range s.Paths {
		s.path = filepath.Join(folder, filepath.FromSlash(name))
		if _, err := os.Lstat(s.path); err == nil {
			break
		}
	}
	s.backupPath = filepath.Join(filepath.Dir(configPath), "use", c.ID+".json")
	data, err := os.ReadFile(s.backupPath)
	if err == nil && json.Unmarshal(data, &s.backup) != nil {
		err = errors.New("it is damaged; move it away, and restore what you need of it by hand")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the copy of the former settings in %s: %w", s.backupPath, err)
	}
	if undo {
		s.path = s.backup.Path
	}
	switch {
	case s.path == "":
		return nil, fmt.Errorf("%s was not set up on this machine", c.Title)
	case s.backup.Path != "" && s.backup.Path != s.path:
		return nil, fmt.Errorf("this client is set up in %s; undo that first, with --undo", s.backup.Path)
	}
	return s, s.read()
}

// read reads the file, which may be a symbolic link.
func (s *settings) read() error {
	s.before, s.mode = nil, 0
	info, err := os.Stat(s.path)
	link, linkErr := os.Readlink(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && linkErr == nil:
		return fmt.Errorf("%s is a symbolic link to %s, which does not exist; create that, or remove the link", s.path, link)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", s.path)
	case info.Mode()&0o200 == 0:
		return fmt.Errorf("%s is marked as read-only; make it writable first", s.path)
	}
	s.mode = info.Mode().Perm()
	if s.before, err = os.ReadFile(s.path); errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w; change its owner with chown", err)
	}
	return err
}

// write sets the client up. Another program may have changed the file since it was shown.
func (s *settings) write(t clients.Traded) error {
	if err := s.read(); err != nil {
		return err
	}
	after, _, err := s.Format.Merge(s.before, s.Members(t.Values))
	if err == nil {
		err = s.saveBackup(after, t.KeyName)
	}
	if err == nil {
		err = config.Replace(s.path, after, 0o600) // it contains the key
	}
	return err
}

// saveBackup saves the original before the file is replaced: the process may die in between.
func (s *settings) saveBackup(after []byte, keyName string) error {
	if s.backup.Path == "" {
		s.backup = backup{Path: s.path, Mode: s.mode, Original: s.before}
	}
	if s.isUnchanged() || s.isOriginal() { // otherwise, the new text contains changes of others, too
		s.backup.Written = sha256.Sum256(after)
	}
	s.backup.KeyName = keyName
	data, _ := json.Marshal(s.backup) // it cannot fail
	return config.Replace(s.backupPath, data, 0o600)
}

// isUnchanged reports whether the file is as the command has written it.
func (s *settings) isUnchanged() bool { return s.backup.Written == sha256.Sum256(s.before) }

// isOriginal reports whether the file is as it was before the first run.
func (s *settings) isOriginal() bool {
	return s.mode == s.backup.Mode && bytes.Equal(s.before, s.backup.Original)
}
