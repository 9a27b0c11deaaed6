package upstream

import "net"

// pending always reports false: a socket of Windows cannot be read without waiting.
func pending(net.Conn) bool { return false }
