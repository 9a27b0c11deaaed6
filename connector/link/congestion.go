package link

import (
	"net"
	"syscall"
)

// PreferBBR asks for a congestion control that does not take every lost packet
// for a full path, on the TCP connection below conn. Where it cannot be found,
// or the kernel has no BBR, everything stays as it is.
func PreferBBR(conn net.Conn) {
	for conn != nil {
		if socket, ok := conn.(syscall.Conn); ok {
			if raw, err := socket.SyscallConn(); err == nil {
				preferBBR(raw)
			}
			return
		}
		wrapper, ok := conn.(interface{ NetConn() net.Conn }) // as TLS is one
		if !ok {
			return
		}
		conn = wrapper.NetConn()
	}
}

// ControlBBR is [PreferBBR] as a [net.Dialer] wants it: from the first packet.
func ControlBBR(_, _ string, raw syscall.RawConn) error {
	preferBBR(raw)
	return nil
}
