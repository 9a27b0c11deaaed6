package upstream

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/windows"
)

// pollFD is WSAPOLLFD of winsock2.h.
type pollFD struct {
	fd              windows.Handle
	events, revents int16
}

const pollReadable = 0x0300 // POLLRDNORM | POLLRDBAND

var wsaPoll = windows.NewLazySystemDLL("ws2_32.dll").NewProc("WSAPoll")

// silent reports whether a socket has nothing to read: no bytes, no end, no error. Sockets
// block on Windows, so it polls first.
func silent(fd uintptr) bool {
	poll := pollFD{fd: windows.Handle(fd), events: pollReadable}
	ready, _, _ := wsaPoll.Call(uintptr(unsafe.Pointer(&poll)), 1, 0)
	runtime.KeepAlive(&poll)
	return ready == 0
}
