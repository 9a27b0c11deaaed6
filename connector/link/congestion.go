package link

import (
	"net"
	"syscall"
)

// PreferBBR asks for a congestion control that does not take every lost packet
// for a full path, on the TCP connection below conn. Where it cannot be found,
// or the kernel has no BBR, everything stays as it is.
func PreferBBR(conn net.Conn) {
	if raw := below(conn); raw != nil {
		preferBBR(raw)
	}
}

// ControlBBR is [PreferBBR] as a [net.Dialer] wants it: from the first packet.
func ControlBBR(_, _ string, raw syscall.RawConn) error {
	preferBBR(raw)
	return nil
}

// UsesBBR reports whether the TCP connection below conn has BBR; false if that is not
// known.
func UsesBBR(conn net.Conn) bool {
	raw := below(conn)
	return raw != nil && usesBBR(raw)
}

// below returns the socket below conn, nil if it cannot be found.
func below(conn net.Conn) syscall.RawConn {
	for conn != nil {
		if socket, ok := conn.(syscall.Conn); ok {
			raw, err := socket.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		}
		wrapper, ok := conn.(interface{ NetConn() net.Conn }) // as TLS is one
		if !ok {
			return nil
		}
		conn = wrapper.NetConn()
	}
	return nil
}
