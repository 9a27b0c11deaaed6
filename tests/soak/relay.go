package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A relay is a bad UDP path to the gateway, for some of the connectors: it
// loses, delays and stops packets, and moves its end of all flows to other
// ports, as a NAT does that was restarted.
type relay struct {
	front  *net.UDPConn
	target *net.UDPAddr

	mu     sync.Mutex
	random *rand.Rand
	loss   float64 // share of the packets, in each direction
	delay  time.Duration
	dark   bool
	flows  map[string]*net.UDPConn // to the gateway, by the connector's address
	closed bool
}

// newRelay starts a relay to the gateway's address.
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

// address is what connectors dial.
func (r *relay) address() string { return r.front.LocalAddr().String() }

// set changes what happens to packets; the zero values make it a good path.
func (r *relay) set(loss float64, delay time.Duration, dark bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loss, r.delay, r.dark = loss, delay, dark
}

// rebind gives all flows other ports.
func (r *relay) rebind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for from, flow := range r.flows {
		flow.Close()
		delete(r.flows, from)
	}
}

func (r *relay) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.front.Close()
	r.rebind()
}

// outward takes the packets of connectors.
func (r *relay) outward() {
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := r.front.ReadFromUDP(buffer)
		if err != nil {
			return // it is closed: nothing else ends a UDP socket that listens
		}
		if flow := r.flow(from); flow != nil {
			r.pass(buffer[:n], func(p []byte) { _, _ = flow.Write(p) }) // UDP promises nothing
		}
	}
}

// flow returns the socket for a connector's address, a new one if there is none.
func (r *relay) flow(from *net.UDPAddr) *net.UDPConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if flow := r.flows[from.String()]; flow != nil || r.closed {
		return flow
	}
	flow, err := net.DialUDP("udp", nil, r.target)
	if err != nil {
		return nil // a packet that is lost; the next one tries again
	}
	r.flows[from.String()] = flow
	go r.inward(flow, from)
	return flow
}

// inward takes the gateway's packets of one flow until it is closed.
func (r *relay) inward(flow *net.UDPConn, to *net.UDPAddr) {
	buffer := make([]byte, 64<<10)
	for {
		// A flow that has been silent for long belongs to a connector's
		// socket that is gone.
		_ = flow.SetReadDeadline(time.Now().Add(flowLimit))
		n, err := flow.Read(buffer)
		if err != nil && r.over(flow, to, err) {
			return
		}
		r.pass(buffer[:n], func(p []byte) { _, _ = r.front.WriteToUDP(p, to) }) // UDP promises nothing
	}
}

// flowLimit is how long a flow is kept without a packet from the gateway: no
// tunnel is silent for that long.
const flowLimit = 2 * time.Minute

// over tells whether the flow is to end. While the gateway is down the kernel
// reports that nobody listens, which is no end.
func (r *relay) over(flow *net.UDPConn, to *net.UDPAddr, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flows[to.String()] != flow {
		return true // closed, or rebound
	}
	if isTimeout(err) {
		flow.Close()
		delete(r.flows, to.String())
		return true
	}
	return false
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

// pass sends a packet on, or not, at once or later.
func (r *relay) pass(packet []byte, send func([]byte)) {
	r.mu.Lock()
	lost := r.dark || r.random.Float64() < r.loss
	delay := r.delay
	r.mu.Unlock()
	switch {
	case lost || len(packet) == 0:
	case delay == 0:
		send(packet)
	default:
		later := append([]byte(nil), packet...)
		time.AfterFunc(delay, func() { send(later) })
	}
}
