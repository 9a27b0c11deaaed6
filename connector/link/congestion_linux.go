package link

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func preferBBR(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "bbr")
	})
}

// usesBBR reads the congestion control in use.
func usesBBR(raw syscall.RawConn) (yes bool) {
	_ = raw.Control(func(fd uintptr) {
		name, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		yes = err == nil && strings.HasPrefix(name, "bbr") // or a later version of it
	})
	return yes
}
