package link

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func preferBBR(raw syscall.RawConn) (uses bool) {
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "bbr")
		name, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		uses = err == nil && strings.HasPrefix(name, "bbr") // or a later version of it
	})
	return uses
}
