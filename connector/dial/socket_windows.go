package dial

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// noWayErrors are those of a write while this machine has no way to the
// gateway: Windows has its own numbers. WSAEACCES is a firewall's.
var noWayErrors = [...]syscall.Errno{
	windows.WSAENETUNREACH, windows.WSAEHOSTUNREACH, windows.WSAENETDOWN, windows.WSAENOBUFS, windows.WSAEACCES, windows.WSAEADDRNOTAVAIL,
}
