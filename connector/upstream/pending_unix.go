//go:build unix

package upstream

import (
	"net"
	"syscall"
)

// pending reports whether bytes or the end of an idle connection have arrived. A read that a deadline ends does not
// show that: the deadline may end it before it has looked, or before the runtime has noticed the bytes.
func pending(conn net.Conn) bool {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	found := true
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		found = err != syscall.EAGAIN
		return true
	})
	return found || err != nil
}
