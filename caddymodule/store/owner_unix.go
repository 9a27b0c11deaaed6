//go:build unix

package store

import (
	"os"
	"syscall"
)

// keepOwner gives a file the owner and the group of another one. Only root can: the
// files of others are their own.
func keepOwner(file *os.File, like os.FileInfo) error {
	if stat, ok := like.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		return file.Chown(int(stat.Uid), int(stat.Gid))
	}
	return nil
}
