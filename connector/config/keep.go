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
	// stagedFiles is the pattern of the files that replace a configuration once they are
	// complete.
	stagedFiles = ".connector-new-*.json"
	// leftover is the age at which such a file is abandoned.
	leftover = time.Hour
)

// ReplaceToken replaces the tunnel token in the configuration file at path, and keeps
// the rest, including its mode and owner. The replacement is atomic, and durable after
// the return. Errors name the file and never contain a token.
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

// withToken returns the text of a configuration with the token replaced.
func withToken(data []byte, old, renewed string) ([]byte, error) {
	c, err := Parse(data)
	switch token := strings.TrimSpace(c.TunnelToken); {
	case err != nil:
		return nil, fmt.Errorf("has become invalid: %w", err)
	case token == "":
		return nil, errors.New("contains no tunnel token: it comes from the environment")
	case token == strings.TrimSpace(renewed):
		return data, nil // already written; the answer was lost
	case token != strings.TrimSpace(old):
		return nil, errors.New("contains a different tunnel token than the one in use; run `connector reload`")
	}
	fields, err := object("", bytes.TrimPrefix(data, byteOrderMark), tags(reflect.TypeFor[Config]()))
	written := fields["tunnel_token"]
	if err != nil || bytes.Count(data, written) != 1 {
		return nil, errors.New("contains its tunnel token twice")
	}
	value, _ := json.Marshal(renewed) // a string cannot fail
	return bytes.Replace(data, written, value, 1), nil
}

// target returns path with symbolic links resolved.
func target(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// replace atomically replaces target by a file with this text: see stage.
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

// stage writes text to a new file next to target, with the mode and the owner of like.
// Without like, only the current user can read it. It removes staged files that killed
// processes have left behind.
func stage(target string, text []byte, like os.FileInfo) (name string, err error) {
	dir := filepath.Dir(target)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	names, _ := filepath.Glob(filepath.Join(dir, stagedFiles)) // the pattern is valid
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
		// Changing the owner may clear bits of the mode, so it comes first.
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

// syncFolder makes a rename durable. Windows does not support that.
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
