//go:build !linux

package link

import "syscall"

// preferBBR does nothing: the system selects the congestion control.
func preferBBR(syscall.RawConn) {}
