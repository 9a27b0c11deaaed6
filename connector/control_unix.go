//go:build unix

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// ownedByUser reports whether a file is this user's, and only this user can write it.
func ownedByUser(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}
