//go:build !windows

package dial

import "syscall"

// noWayErrors are those of a write while this machine has no way to the
// gateway. EPERM is a firewall's.
var noWayErrors = [...]syscall.Errno{
	syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.ENOBUFS, syscall.EPERM, syscall.EADDRNOTAVAIL,
}
