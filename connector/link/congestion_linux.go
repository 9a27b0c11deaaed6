package link

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func preferBBR(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "bbr")
	})
}
