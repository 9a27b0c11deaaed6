//go:build unix

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// ownedByUser reports whether a file belongs to the current user, and others cannot
// write to it.
func ownedByUser(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}
