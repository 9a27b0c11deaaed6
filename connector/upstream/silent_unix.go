//go:build unix

package upstream

import "syscall"

// silent reports whether a non-blocking socket has nothing to read: no bytes, no end, no
// error.
func silent(fd uintptr) bool {
	var b [1]byte
	_, err := syscall.Read(int(fd), b[:])
	return err == syscall.EAGAIN
}
