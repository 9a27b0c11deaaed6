// Package downloads hands out connectors: the archives of a release in a folder of the
// gateway, and scripts that install them.
//
//	downloads.go   the folder and its archives
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

	"github.com/postern-dev/postern/connector/version"
)

// Archive is the connector for one system, in the archive of a release.
type Archive struct {
	Name         string // of the file, such as "connector_0.9.0_linux_amd64.tar.gz"
	Version      string // such as "0.9.0"
	System, Arch string // as GOOS and GOARCH, and "armv7"
	Size         int64  // in bytes
	SHA256       string // in hexadecimal
}

// Platform returns the system and architecture, such as "linux/amd64".
func (a Archive) Platform() string { return a.System + "/" + a.Arch }

// Folder is a folder of archives. Other files in it are ignored, and it need not exist. It
// is read at each use: the operator may replace its files at any time. Concurrent uses share a read.
type Folder struct {
	path string

	reads atomic.Int64 // that have begun
	mu    sync.Mutex
	last  []Archive      // of the last read
	sums  map[string]sum // by name
}

// sum is the hash of a file with this size and time.
type sum struct {
	size   int64
	time   time.Time
	sha256 string
}

// form is the form of an archive's name.
var form = regexp.MustCompile(`^connector_([0-9][0-9A-Za-z.+~-]*)_` +
	`(linux|darwin|windows|freebsd)_(amd64|arm64|armv7)\.(tar\.gz|zip)$`)

// NewFolder returns the folder at a path.
func NewFolder(path string) *Folder { return &Folder{path: path, sums: make(map[string]sum)} }

// Path returns the path of the folder.
func (f *Folder) Path() string { return f.path }

// Archives returns the newest archive of each system and architecture, in the order of
// their names.
func (f *Folder) Archives() []Archive { return slices.Clone(f.after(f.reads.Load())) }

// after returns the archives of a read that has begun after the first n, for which other calls may wait, too.
func (f *Folder) after(n int64) []Archive {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reads.Load() > n {
		return f.last
	}
	f.reads.Add(1)
	entries, _ := os.ReadDir(f.path) // without the folder there are none
	newest := make(map[string]Archive)
	for _, e := range entries {
		a, ok := parse(e.Name())
		if other, exists := newest[a.Platform()]; ok && (!exists || version.Newer(a.Version, other.Version)) {
			newest[a.Platform()] = a
		}
	}
	sums, archives := make(map[string]sum), []Archive{}
	for _, a := range newest {
		if s, err := f.sum(a.Name); err == nil { // it may be removed meanwhile
			sums[a.Name], a.Size, a.SHA256 = s, s.size, s.sha256
			archives = append(archives, a)
		}
	}
	f.sums, f.last = sums, archives
	slices.SortFunc(archives, func(a, b Archive) int { return cmp.Compare(a.Name, b.Name) })
	return archives
}

// For returns the archive for a system and architecture, such as "linux/amd64".
func (f *Folder) For(platform string) (Archive, bool) {
	return find(f.Archives(), func(a Archive) bool { return a.Platform() == platform })
}

// Open opens the named archive, if it is one of [Folder.Archives].
func (f *Folder) Open(name string) (*os.File, error) {
	if _, ok := find(f.Archives(), func(a Archive) bool { return a.Name == name }); !ok {
		return nil, os.ErrNotExist
	}
	return os.Open(filepath.Join(f.path, name))
}

func find(archives []Archive, is func(Archive) bool) (Archive, bool) {
	if i := slices.IndexFunc(archives, is); i >= 0 {
		return archives[i], true
	}
	return Archive{}, false
}

// parse reads the name of an archive.
func parse(name string) (Archive, bool) {
	m := form.FindStringSubmatch(name)
	if m == nil || (m[2] == "windows") != (m[4] == "zip") {
		return Archive{}, false
	}
	return Archive{Name: name, Version: m[1], System: m[2], Arch: m[3]}, true
}

// sum returns the hash of a file, which is computed once.
func (f *Folder) sum(name string) (sum, error) {
	path := filepath.Join(f.path, name)
	info, err := os.Stat(path)
	if err != nil {
		return sum{}, err
	}
	if !info.Mode().IsRegular() {
		return sum{}, os.ErrInvalid
	}
	if s, ok := f.sums[name]; ok && s.size == info.Size() && s.time.Equal(info.ModTime()) {
		return s, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return sum{}, err
	}
	defer file.Close()
	hash := sha256.New()
	n, err := io.Copy(hash, file)
	return sum{n, info.ModTime(), hex.EncodeToString(hash.Sum(nil))}, err
}
