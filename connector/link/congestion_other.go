//go:build !linux

package link

import "syscall"

// preferBBR does nothing: the system selects the congestion control.
func preferBBR(syscall.RawConn) {}

// usesBBR returns false: the congestion control is unknown.
func usesBBR(syscall.RawConn) bool { return false }
