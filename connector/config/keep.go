package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"time"
)

const (
	// stagedFiles are the names of files that take the place of a configuration
	// when they are complete.
	stagedFiles = ".connector-new-*.json"
	// leftover is the age at which such a file is abandoned.
	leftover = time.Hour
)

// ReplaceToken puts a new tunnel token into the configuration file at path. All else
// stays, also its mode and owner. Whenever the process or the machine stops, the file
// has one of the two tokens, and the new one for good after the return.
// Errors name the file and hold no token.
func ReplaceToken(path, old, renewed string) error {
	file := target(path)
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	text, err := withToken(data, old, renewed)
	switch {
	case err != nil:
		return fmt.Errorf("%s %w", path, err)
	case bytes.Equal(text, data):
		return syncFolder(filepath.Dir(file))
	case info.Mode().Perm()&0o200 == 0:
		return fmt.Errorf("%s is marked as read-only", path)
	}
	return replace(file, text, info)
}

// withToken returns the text of a configuration with another token, and every
// other byte as it was.
func withToken(data []byte, old, renewed string) ([]byte, error) {
	c, err := Parse(data)
	switch token := strings.TrimSpace(c.TunnelToken); {
	case err != nil:
		return nil, fmt.Errorf("is not as it was at the start: %w", err)
	case token == "":
		return nil, errors.New("holds no tunnel token: it comes from the environment")
	case token == strings.TrimSpace(renewed):
		return data, nil // written by a rotation whose answer was lost
	case token != strings.TrimSpace(old):
		return nil, errors.New("holds another tunnel token than the one in use; run `connector reload`")
	}
	fields, err := object("", bytes.TrimPrefix(data, byteOrderMark), tags(reflect.TypeFor[Config]()))
	written := fields["tunnel_token"]
	if err != nil || bytes.Count(data, written) != 1 {
		return nil, errors.New("holds its tunnel token twice")
	}
	value, _ := json.Marshal(renewed) // a string cannot fail
	return bytes.Replace(data, written, value, 1), nil
}

// target returns the file itself, where path is a link to it.
func target(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// replace writes text to a file in place of target, as a whole: see stage.
func replace(target string, text []byte, like os.FileInfo) error {
	staged, err := stage(target, text, like)
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	if err := os.Rename(staged, target); err != nil {
		_ = os.Remove(staged)
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return syncFolder(filepath.Dir(target))
}

// stage writes text to a new file next to target, with the mode and the owner of
// like; nil: only the user of this process can read it. It removes the files that
// killed processes have staged.
func stage(target string, text []byte, like os.FileInfo) (name string, err error) {
	dir := filepath.Dir(target)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	names, _ := filepath.Glob(filepath.Join(dir, stagedFiles)) // the pattern is right
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && time.Since(info.ModTime()) > leftover {
			_ = os.Remove(name)
		}
	}
	file, err := os.CreateTemp(dir, stagedFiles) // with mode 0600
	if err != nil {
		return "", err
	}
	_, err = file.Write(text)
	if err == nil && like != nil {
		// The owner comes before the mode: changing it may clear bits.
		if err = keepOwner(file, like); err == nil {
			err = file.Chmod(like.Mode().Perm())
		}
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

// syncFolder makes a rename durable. Windows cannot do so.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	folder, err := os.Open(dir)
	if err == nil {
		err = errors.Join(folder.Sync(), folder.Close())
	}
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return nil
}
