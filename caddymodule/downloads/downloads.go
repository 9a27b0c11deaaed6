// Package downloads provides connectors: the archives of a release in a folder of the
// gateway, and scripts that install them.
//
//	downloads.go   the folder and its archives
//	newer.go       the order of versions
//	scripts.go     the scripts for shells and PowerShell
package downloads

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Archive is the connector for one system, in the archive of a release.
type Archive struct {
	Name         string // of the file, such as "connector_0.9.0_linux_amd64.tar.gz"
	Version      string // such as "0.9.0"
	System, Arch string // as GOOS and GOARCH, and "armv7"
	Size         int64  // in bytes
	SHA256       string // in hexadecimal
	modified     time.Time
}

// Platform returns the system and architecture, such as "linux/amd64".
func (a Archive) Platform() string { return a.System + "/" + a.Arch }

// Folder is a folder of archives. Other files in it are ignored, and it need not exist. It
// is read at each use: the operator may replace its files at any time. Concurrent uses share a read.
type Folder struct {
	path string

	begun atomic.Int64 // reads of the folder that have begun
	mu    sync.Mutex
	last  []Archive // of the last read
}

// namePattern matches the name of an archive.
var namePattern = regexp.MustCompile(`^connector_([0-9][0-9A-Za-z.+~-]*)_` +
	`(linux|darwin|windows|freebsd)_(amd64|arm64|armv7)\.(tar\.gz|zip)$`)

// NewFolder returns the folder at a path.
func NewFolder(path string) *Folder { return &Folder{path: path} }

// Path returns the path of the folder.
func (f *Folder) Path() string { return f.path }

// Archives returns the newest archive of each system and architecture, in the order of
// their names.
func (f *Folder) Archives() []Archive { return slices.Clone(f.readAfter(f.begun.Load())) }

// readAfter returns the archives of a read that begins after the first n reads. Concurrent calls share it.
func (f *Folder) readAfter(n int64) []Archive {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun.Load() > n {
		return f.last
	}
	f.begun.Add(1)
	entries, _ := os.ReadDir(f.path) // a missing folder contains no archives
	newest := make(map[string]Archive)
	for _, e := range entries {
		a, ok := parse(e.Name())
		if other, exists := newest[a.Platform()]; ok && (!exists || Newer(a.Version, other.Version)) {
			newest[a.Platform()] = a
		}
	}
	archives := []Archive{}
	for _, a := range newest {
		if f.hash(&a) == nil { // the file may have been removed
			archives = append(archives, a)
		}
	}
	slices.SortFunc(archives, func(a, b Archive) int { return cmp.Compare(a.Name, b.Name) })
	f.last = archives
	return archives
}

// Open opens the named archive, if it is one of [Folder.Archives].
func (f *Folder) Open(name string) (*os.File, error) {
	if !slices.ContainsFunc(f.Archives(), func(a Archive) bool { return a.Name == name }) {
		return nil, os.ErrNotExist
	}
	return os.Open(filepath.Join(f.path, name))
}

// parse reads the name of an archive.
func parse(name string) (Archive, bool) {
	m := namePattern.FindStringSubmatch(name)
	if m == nil || (m[2] == "windows") != (m[4] == "zip") {
		return Archive{}, false
	}
	return Archive{Name: name, Version: m[1], System: m[2], Arch: m[3]}, true
}

// hash sets the size and the hash of an archive. It computes the hash once.
func (f *Folder) hash(a *Archive) error {
	path := filepath.Join(f.path, a.Name)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return os.ErrInvalid
	}
	same := func(last Archive) bool {
		return last.Name == a.Name && last.Size == info.Size() && last.modified.Equal(info.ModTime())
	}
	if i := slices.IndexFunc(f.last, same); i >= 0 {
		*a = f.last[i]
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	hash := sha256.New()
	a.Size, err = io.Copy(hash, file)
	a.SHA256, a.modified = hex.EncodeToString(hash.Sum(nil)), info.ModTime()
	return err
}
