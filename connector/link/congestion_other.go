//go:build !linux

package link

import "syscall"

// preferBBR does nothing here: the choice is the system's.
func preferBBR(syscall.RawConn) {}

// usesBBR: it is not known here.
func usesBBR(syscall.RawConn) bool { return false }
