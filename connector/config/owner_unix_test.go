//go:build unix

package config

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// likeInfo is a file of another user or group.
type likeInfo struct {
	os.FileInfo
	stat syscall.Stat_t
}

func (l likeInfo) Sys() any { return &l.stat }

// newFile returns an own file, and the description of a file of the same owner and group.
func newFile(t *testing.T) (*os.File, likeInfo) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "new"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return file, likeInfo{info, *info.Sys().(*syscall.Stat_t)}
}

// Root gives the file to its owner. Other users cannot, and change nothing: the owner could not
// read the file afterwards.
func TestKeepOwner(t *testing.T) {
	file, like := newFile(t)
	like.stat.Uid, like.stat.Gid = 12345, 12346
	err := keepOwner(file, like, 0o600)
	if os.Geteuid() != 0 {
		wantText(t, err, "it belongs to the user 12345; change its owner")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := file.Stat(); info.Sys().(*syscall.Stat_t).Uid != 12345 || info.Sys().(*syscall.Stat_t).Gid != 12346 {
		t.Errorf("the owner is %v", info.Sys())
	}
}

// A group that cannot be kept matters only to a file that its group can use.
func TestKeepOwnerIgnoresTheGroup(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can keep each group")
	}
	file, like := newFile(t)
	like.stat.Gid = 12346
	if err := keepOwner(file, like, 0o600); err != nil {
		t.Error(err)
	}
	if err := keepOwner(file, like, 0o640); err == nil {
		t.Error("another group can read the file")
	}
}

// Prepare finds what Save would find.
func TestStoreKeepsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has files of others")
	}
	path := writeConfig(t, "{}", 0o640)
	if err := os.Chown(path, 12345, 12346); err != nil {
		t.Skip(err)
	}
	s := &Store{Path: path}
	if err := s.Prepare(); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(Config{TunnelToken: "ptt_new"}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 12345 || stat.Gid != 12346 || info.Mode().Perm() != 0o600 {
		t.Errorf("the owner is %d:%d, the mode %v", stat.Uid, stat.Gid, info.Mode())
	}
}
