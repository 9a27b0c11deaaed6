//go:build unix

package config

import (
	"os"
	"syscall"
	"testing"
)

// likeInfo is a file of another user.
type likeInfo struct {
	os.FileInfo
	stat syscall.Stat_t
}

func (l likeInfo) Sys() any { return &l.stat }

// Root gives the file to its owner. Other users cannot, and change nothing: the owner could not
// read the file afterwards.
func TestReplaceTokenKeepsTheOwner(t *testing.T) {
	path := writeConfig(t, "{}", 0o600)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	like := likeInfo{info, *info.Sys().(*syscall.Stat_t)}
	like.stat.Uid, like.stat.Gid = 12345, 12346
	name, err := stage(path, []byte("{ }"), 0o640, like)
	if os.Geteuid() != 0 {
		if err == nil {
			t.Error("a file of another owner was staged")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	staged, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if staged.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v", staged.Mode())
	}
	if stat := staged.Sys().(*syscall.Stat_t); stat.Uid != 12345 || stat.Gid != 12346 {
		t.Errorf("the owner is %d:%d", stat.Uid, stat.Gid)
	}
}
