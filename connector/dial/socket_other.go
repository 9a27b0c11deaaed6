//go:build !windows

package dial

import "syscall"

// noRouteErrors are the errors of a write without a route to the gateway. A firewall causes
// EPERM.
var noRouteErrors = [...]syscall.Errno{
	syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.ENOBUFS, syscall.EPERM, syscall.EADDRNOTAVAIL,
}
