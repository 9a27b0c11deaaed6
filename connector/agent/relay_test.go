package agent

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// relay passes datagrams between one gateway and its clients.
type relay struct {
	front   *net.UDPConn
	target  *net.UDPAddr
	blocked atomic.Bool
	// stall is how long all packets are lost after the first packet of the gateway.
	stall atomic.Int64

	mu    sync.Mutex
	backs map[string]*net.UDPConn // by the client's address
}

func newRelay(t *testing.T, target net.Addr) *relay {
	t.Helper()
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{front: front, target: target.(*net.UDPAddr), backs: map[string]*net.UDPConn{}}
	go r.forth()
	t.Cleanup(func() {
		_ = front.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, back := range r.backs {
			_ = back.Close()
		}
	})
	return r
}

func (r *relay) forth() {
	packet := make([]byte, 2048)
	for {
		n, from, err := r.front.ReadFromUDP(packet)
		if err != nil {
			return
		}
		r.mu.Lock()
		back := r.backs[from.String()]
		if back == nil {
			if back, err = net.DialUDP("udp", nil, r.target); err != nil {
				r.mu.Unlock()
				return
			}
			r.backs[from.String()] = back
			go r.back(back, from)
		}
		r.mu.Unlock()
		if !r.blocked.Load() {
			_, _ = back.Write(packet[:n])
		}
	}
}

func (r *relay) back(from *net.UDPConn, to *net.UDPAddr) {
	packet := make([]byte, 2048)
	for {
		n, err := from.Read(packet)
		if err != nil {
			return
		}
		if !r.blocked.Load() {
			_, _ = r.front.WriteToUDP(packet[:n], to)
			if d := r.stall.Swap(0); d > 0 {
				r.blocked.Store(true)
				time.AfterFunc(time.Duration(d), func() { r.blocked.Store(false) })
			}
		}
	}
}
