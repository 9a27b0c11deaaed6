//go:build unix

package update

import (
	"os"
	"syscall"
)

// apart starts a process in a group of its own.
var apart = &syscall.SysProcAttr{Setpgid: true}

// stop lets the bridge finish its requests and end.
func (b *bridge) stop() { _ = b.process.Signal(syscall.SIGTERM) } // it may have ended

// keepOwner sets the owner and the group of a file to those of another one, which differ if
// the superuser updates a user's program.
func keepOwner(path string, like os.FileInfo) error {
	want, ok := like.Sys().(*syscall.Stat_t)
	if !ok || int(want.Uid) == os.Geteuid() {
		return nil
	}
	return os.Chown(path, int(want.Uid), int(want.Gid))
}
