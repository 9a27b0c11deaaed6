package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// conditions describe how a path changes the flow of packets. The zero value is a good path.
type conditions struct {
	loss  float64 // share of packets that are lost, in each direction
	delay time.Duration
	dark  bool // all packets are lost
}

// A relay is a bad UDP path to the gateway for some of the connectors. It loses, delays and stops packets.
// Like a NAT that restarts, it can move all flows to other ports. It does not need a network namespace.
type relay struct {
	front  *net.UDPConn
	target *net.UDPAddr

	mu     sync.Mutex
	random *rand.Rand
	now    conditions
	flows  map[string]*net.UDPConn // sockets to the gateway, by the connector's address
}

// flowLimit is the time after which a flow without packets from the gateway is closed. Tunnels are never
// silent for so long.
const flowLimit = 2 * time.Minute

// newRelay starts a relay to the gateway's address. It runs until the process ends.
func newRelay(target string, random *rand.Rand) (*relay, error) {
	to, err := net.ResolveUDPAddr("udp", target)
	if err != nil {
		return nil, fmt.Errorf("reading the gateway's address: %w", err)
	}
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("listening for packets: %w", err)
	}
	r := &relay{front: front, target: to, random: random, flows: map[string]*net.UDPConn{}}
	go r.outward()
	return r, nil
}

// set changes the conditions.
func (r *relay) set(c conditions) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = c
}

// rebind moves all flows to other ports.
func (r *relay) rebind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for from, flow := range r.flows {
		flow.Close()
		delete(r.flows, from)
	}
}

// outward forwards the packets of connectors.
func (r *relay) outward() {
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := r.front.ReadFromUDP(buffer)
		if err != nil {
			return // the socket is closed: it has no other errors
		}
		if flow := r.flow(from); flow != nil {
			r.pass(buffer[:n], func(p []byte) { _, _ = flow.Write(p) }) // UDP may lose packets
		}
	}
}

// flow returns the socket for a connector's address. It opens one if there is none.
func (r *relay) flow(from *net.UDPAddr) *net.UDPConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if flow := r.flows[from.String()]; flow != nil {
		return flow
	}
	flow, err := net.DialUDP("udp", nil, r.target)
	if err != nil {
		return nil // the packet is lost; the next one tries again
	}
	r.flows[from.String()] = flow
	go r.inward(flow, from)
	return flow
}

// inward forwards the gateway's packets of one flow until the flow is closed or flowLimit has passed without a
// packet. It ignores the errors that the kernel reports while the gateway is down.
func (r *relay) inward(flow *net.UDPConn, to *net.UDPAddr) {
	buffer := make([]byte, 64<<10)
	for {
		_ = flow.SetReadDeadline(time.Now().Add(flowLimit))
		n, err := flow.Read(buffer)
		switch {
		case err == nil:
			r.pass(buffer[:n], func(p []byte) { _, _ = r.front.WriteToUDP(p, to) }) // UDP promises nothing
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.mu.Lock()
			if r.flows[to.String()] == flow {
				delete(r.flows, to.String())
			}
			r.mu.Unlock()
			flow.Close()
			return
		}
	}
}

// pass drops a packet, or sends it at once or later.
func (r *relay) pass(packet []byte, send func([]byte)) {
	r.mu.Lock()
	c, lost := r.now, r.now.dark || r.random.Float64() < r.now.loss
	r.mu.Unlock()
	switch {
	case lost:
	case c.delay == 0:
		send(packet)
	default:
		later := append([]byte(nil), packet...)
		time.AfterFunc(c.delay, func() { send(later) })
	}
}
