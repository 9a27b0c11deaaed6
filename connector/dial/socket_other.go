//go:build !windows

package dial

import "syscall"

// noWayErrors are the errors of a write without a route to the gateway. A firewall causes
// EPERM.
var noWayErrors = [...]syscall.Errno{
	syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.ENOBUFS, syscall.EPERM, syscall.EADDRNOTAVAIL,
}
