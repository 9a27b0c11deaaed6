package link

import "syscall"

// tcpCongestion is TCP_CONGESTION of <linux/tcp.h>.
const tcpCongestion = 13

func preferBBR(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, tcpCongestion, "bbr")
	})
}
