package link

import (
	"net"
	"syscall"
)

// PreferBBR selects BBR on the TCP connection below conn, as it does not treat every lost
// packet as congestion. It has no effect if the kernel has no BBR.
func PreferBBR(conn net.Conn) {
	if raw := below(conn); raw != nil {
		preferBBR(raw)
	}
}

// ControlBBR is [PreferBBR] for [net.Dialer.Control]: BBR is used from the first packet.
func ControlBBR(_, _ string, raw syscall.RawConn) error {
	preferBBR(raw)
	return nil
}

// UsesBBR reports whether the TCP connection below conn is known to use BBR.
func UsesBBR(conn net.Conn) bool {
	raw := below(conn)
	return raw != nil && usesBBR(raw)
}

// below returns the socket below conn, or nil.
func below(conn net.Conn) syscall.RawConn {
	for conn != nil {
		if socket, ok := conn.(syscall.Conn); ok {
			raw, err := socket.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		}
		wrapper, ok := conn.(interface{ NetConn() net.Conn }) // such as TLS
		if !ok {
			return nil
		}
		conn = wrapper.NetConn()
	}
	return nil
}
