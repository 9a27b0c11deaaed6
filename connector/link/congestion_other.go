//go:build !linux

package link

import "syscall"

// preferBBR does nothing here: the choice is the system's.
func preferBBR(syscall.RawConn) {}

// usesBBR: nobody can tell here.
func usesBBR(syscall.RawConn) bool { return false }
