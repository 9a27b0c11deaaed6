//go:build unix

package store

import (
	"os"
	"syscall"
)

// keepOwner gives a file the owner and the group of another one. It does nothing without
// root's rights: the files of other users have the right owner already.
func keepOwner(file *os.File, like os.FileInfo) error {
	if stat, ok := like.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		return file.Chown(int(stat.Uid), int(stat.Gid))
	}
	return nil
}
