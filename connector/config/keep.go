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
	// stagedFiles are the names of what is written before it takes the place of a
	// configuration.
	stagedFiles = ".connector-new-*.json"
	// leftover is the age at which such a file is abandoned.
	leftover = time.Hour
)

// errReadOnly: a read-only configuration is not changed.
var errReadOnly = errors.New("is marked as read-only")

// ReplaceToken puts a new tunnel token into the configuration file at path, in
// place of the old one. All else in it stays as it is, and so do its mode and its
// owner. The file has the one or the other as a whole, whenever the process or
// the machine stops, and after the return it has the new one for good.
//
// Errors name the file and hold no token. After one the old token is in the file,
// unless it says that the folder could not be synced.
func ReplaceToken(path, old, renewed string) error {
	target := (&Store{path: path}).target()
	info, err := os.Stat(target)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	data, err := os.ReadFile(target)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	text, err := withToken(data, old, renewed)
	if err != nil {
		return fmt.Errorf("%s %w", path, err)
	}
	if bytes.Equal(text, data) {
		return syncFolder(filepath.Dir(target))
	}
	if info.Mode().Perm()&0o200 == 0 {
		return fmt.Errorf("%s %w", path, errReadOnly)
	}
	staged, err := stage(target, text, info)
	if err != nil {
		return err
	}
	return commit(staged, target)
}

// stage writes text to a new file next to target, with the mode and the owner of
// like; nil: only the user of this process can read it.
func stage(target string, text []byte, like os.FileInfo) (name string, err error) {
	removeLeftovers(filepath.Dir(target))
	file, err := os.CreateTemp(filepath.Dir(target), stagedFiles) // with mode 0600
	if err != nil {
		return "", fmt.Errorf("writing the configuration: %w", err)
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
		return "", fmt.Errorf("writing the configuration: %w", err)
	}
	return file.Name(), nil
}

// commit puts a staged file into the place of target.
func commit(staged, target string) error {
	if err := os.Rename(staged, target); err != nil {
		_ = os.Remove(staged)
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return syncFolder(filepath.Dir(target))
}

// removeLeftovers removes the files that killed processes have staged.
func removeLeftovers(dir string) {
	names, _ := filepath.Glob(filepath.Join(dir, stagedFiles)) // the pattern is right
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && time.Since(info.ModTime()) > leftover {
			_ = os.Remove(name)
		}
	}
}

// withToken returns the text of a configuration with another token, and every
// other byte as it was.
func withToken(data []byte, old, renewed string) ([]byte, error) {
	before, err := Parse(data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("is not as it was at the start: %w", err)
	case before.TunnelToken == "":
		return nil, errors.New("holds no tunnel token: it comes from the environment")
	case strings.TrimSpace(before.TunnelToken) == strings.TrimSpace(renewed):
		return data, nil // written by a rotation whose answer was lost
	case strings.TrimSpace(before.TunnelToken) != strings.TrimSpace(old):
		return nil, errors.New("holds another tunnel token than the one in use; run `connector reload`")
	}
	begin, end, err := tokenPlace(data)
	if err != nil {
		return nil, err
	}
	value, _ := json.Marshal(renewed) // a string cannot fail
	text := bytes.Join([][]byte{data[:begin], value, data[end:]}, nil)
	after, err := Parse(text)
	before.TunnelToken = renewed
	if err != nil || !reflect.DeepEqual(before, after) {
		return nil, errors.New("cannot be changed in place")
	}
	return text, nil
}

// tokenPlace finds the value of tunnel_token in a valid configuration.
func tokenPlace(data []byte) (begin, end int, err error) {
	bom := len(data) - len(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	dec := json.NewDecoder(bytes.NewReader(data[bom:]))
	if _, err := dec.Token(); err != nil { // the opening brace
		return 0, 0, err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return 0, 0, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return 0, 0, err
		}
		if name == "tunnel_token" {
			end := bom + int(dec.InputOffset())
			return end - len(value), end, nil
		}
	}
	return 0, 0, errors.New("holds no tunnel token")
}

// syncFolder makes a rename durable. Windows cannot do so.
func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	folder, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return nil
}
