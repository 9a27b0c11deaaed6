package rig

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// ports remembers which ports this process has handed out.
var ports struct {
	sync.Mutex
	taken map[int]bool
}

// FreeAddr returns a loopback address, "127.0.0.1:port", that is free for TCP
// and UDP and that no other caller in this process gets.
//
// The port is below the range from which the kernel picks the ports of
// outgoing connections: a server that is killed and started again still finds
// it free.
func FreeAddr() (string, error) {
	ports.Lock()
	defer ports.Unlock()
	for range 1000 {
		port := 18000 + rand.IntN(14000)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if ports.taken[port] || !free(addr) {
			continue
		}
		if ports.taken == nil {
			ports.taken = map[int]bool{}
		}
		ports.taken[port] = true
		return addr, nil
	}
	return "", errors.New("found no free port between 18000 and 32000")
}

// free reports whether an address is free for TCP and UDP.
func free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer l.Close()
	p, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	return p.Close() == nil
}
