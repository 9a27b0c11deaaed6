//go:build !linux

package agent

import "syscall"

// preferBBR does nothing here: the choice is the system's.
func preferBBR(_, _ string, _ syscall.RawConn) error { return nil }
