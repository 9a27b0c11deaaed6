package dial

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// noWayErrors are the errors of a write without a route to the gateway. A firewall causes
// WSAEACCES.
var noWayErrors = [...]syscall.Errno{
	windows.WSAENETUNREACH, windows.WSAEHOSTUNREACH, windows.WSAENETDOWN, windows.WSAENOBUFS, windows.WSAEACCES,
	windows.WSAEADDRNOTAVAIL,
}
