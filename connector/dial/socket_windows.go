package dial

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// noRouteErrors are the errors of a write without a route to the gateway. A firewall causes
// WSAEACCES.
var noRouteErrors = [...]syscall.Errno{
	windows.WSAENETUNREACH, windows.WSAEHOSTUNREACH, windows.WSAENETDOWN, windows.WSAENOBUFS, windows.WSAEACCES,
	windows.WSAEADDRNOTAVAIL,
}
