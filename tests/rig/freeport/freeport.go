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
	all, err := listen(1)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Row returns the first of n ports in a row, each of them like that of [Addr].
func Row(n int) (first int, err error) {
	all, err := listen(n)
	if err != nil {
		return 0, err
	}
	closeAll(all)
	return all[0].Addr().(*net.TCPAddr).Port, nil
}

// listen listens at n ports in a row.
func listen(n int) ([]net.Listener, error) {
	ports.Lock()
	defer ports.Unlock()
	for range 1000 {
		first := 18000 + rand.IntN(14000)
		all := listenAt(first, n)
		if len(all) < n {
			closeAll(all)
			continue
		}
		if ports.taken == nil {
			ports.taken = map[int]bool{}
		}
		for i := range n {
			ports.taken[first+i] = true
		}
		return all, nil
	}
	return nil, errors.New("found no free port between 18000 and 32000")
}

// listenAt listens at n ports in a row, up to the first that is not free.
func listenAt(first, n int) (all []net.Listener) {
	for port := first; port < first+n && !ports.taken[port]; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			break
		}
		p, err := net.ListenPacket("udp", l.Addr().String())
		if err != nil {
			l.Close()
			break
		}
		p.Close()
		all = append(all, l)
	}
	return all
}

func closeAll(all []net.Listener) {
	for _, l := range all {
		l.Close()
	}
}
