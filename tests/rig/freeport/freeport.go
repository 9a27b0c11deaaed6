// Package freeport finds ports for servers of tests. It works on all systems for which
// the connector is built.
package freeport

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

// Addr returns the address of a [Listen] that has ended: free for TCP and UDP.
func Addr() (string, error) {
	l, err := Listen()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Listen takes TCP connections at a loopback address that is free for UDP, too, and
// that no other caller in this process gets.
//
// The port is below the range from which the kernel picks the ports of
// outgoing connections: a server that is killed and started again still finds
// it free.
func Listen() (net.Listener, error) {
	ports.Lock()
	defer ports.Unlock()
	for range 1000 {
		port := 18000 + rand.IntN(14000)
		if ports.taken[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		p, err := net.ListenPacket("udp", l.Addr().String())
		if err != nil {
			l.Close()
			continue
		}
		p.Close()
		if ports.taken == nil {
			ports.taken = map[int]bool{}
		}
		ports.taken[port] = true
		return l, nil
	}
	return nil, errors.New("found no free port between 18000 and 32000")
}
