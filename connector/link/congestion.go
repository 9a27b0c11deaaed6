package link

import (
	"net"
	"syscall"
)

// PreferBBR selects BBR on the TCP connection below conn, as it does not treat every lost
// packet as congestion. It has no effect if the kernel does not have BBR.
func PreferBBR(conn net.Conn) {
	if raw := below(conn); raw != nil {
		preferBBR(raw)
	}
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
