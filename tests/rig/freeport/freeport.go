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

// The ports are below the range from which the kernel picks the ports of outgoing connections: a
// server that is killed and started again still finds its port free.
const (
	lowest    = 18000
	blockSize = 200
	blocks    = 70
)

// ports are the blocks of ports of this process. While it runs, it listens at the first port of
// each, so that no test of another process gets a port between [Addr] and its use.
var ports struct {
	sync.Mutex
	claims    []net.Listener
	next, end int // of the last block
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
// that no other caller gets, in this process or in another one.
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
	if n >= blockSize {
		return nil, fmt.Errorf("%d ports in a row are too many", n)
	}
	for {
		if ports.next+n > ports.end {
			if err := claim(); err != nil {
				return nil, err
			}
		}
		all := listenAt(ports.next, n)
		if ports.next += len(all); len(all) == n {
			return all, nil
		}
		ports.next++ // which another program uses
		closeAll(all)
	}
}

// claim takes another block of ports.
func claim() error {
	begin := rand.IntN(blocks)
	for i := range blocks {
		first := lowest + (begin+i)%blocks*blockSize
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first)); err == nil {
			ports.claims = append(ports.claims, l)
			ports.next, ports.end = first+1, first+blockSize
			return nil
		}
	}
	return errors.New("found no free ports between 18000 and 32000")
}

// listenAt listens at n ports in a row, up to the first that is not free.
func listenAt(first, n int) (all []net.Listener) {
	for port := first; port < first+n; port++ {
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
