package edge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"syscall"
)

// bootFileID identifies a file until its machine boots again: see Boot of store.Edge. Two processes with
// the same id have had the same file open and locked. A copy of the file has another inode.
func bootFileID(path string) string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(id) == 0 {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	file, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	sum := sha256.Sum256(fmt.Append(id, file.Dev, "/", file.Ino))
	return hex.EncodeToString(sum[:8])
}
