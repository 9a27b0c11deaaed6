//go:build unix

package upstream

import "syscall"

// silent reports whether there is nothing to read from a socket that does not
// block: no bytes, no end, no error.
func silent(fd uintptr) bool {
	var b [1]byte
	_, err := syscall.Read(int(fd), b[:])
	return err == syscall.EAGAIN
}
