package agent

import "syscall"

// tcpCongestion is TCP_CONGESTION of <linux/tcp.h>.
const tcpCongestion = 13

// preferBBR asks for a congestion control that does not take every lost packet
// for a full path. Kernels without it keep theirs.
func preferBBR(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, tcpCongestion, "bbr")
	})
}
