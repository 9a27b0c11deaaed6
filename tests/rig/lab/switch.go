//go:build linux

package lab

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
)

// A Switch connects namespaces by one network, 10.98.0.0/24.
type Switch struct {
	drop  atomic.Pointer[func(Packet) bool]
	pumps sync.WaitGroup

	mu    sync.RWMutex
	ports map[netip.Addr]*os.File
	last  byte // number of the address that was given last
}

// NewSwitch returns a switch that the calling thread's namespace is on, and its address there.
func NewSwitch() (s *Switch, address string, err error) {
	s = &Switch{ports: map[netip.Addr]*os.File{}}
	s.Drop(nil)
	here, err := own()
	if err != nil {
		return nil, "", err
	}
	defer here.close()
	address, err = s.join(here)
	return s, address, err
}

// Machine adds a namespace with an address on the switch.
func (s *Switch) Machine() (n *Namespace, address string, err error) {
	if n, err = newNamespace(); err != nil {
		return nil, "", err
	}
	address, err = s.join(n)
	return n, address, err
}

// Drop makes the switch lose the packets for which f returns true, until the next call. With
// nil it loses none.
func (s *Switch) Drop(f func(Packet) bool) {
	if f == nil {
		f = func(Packet) bool { return false }
	}
	s.drop.Store(&f)
}

// Close ends the network.
func (s *Switch) Close() {
	s.mu.Lock()
	for _, port := range s.ports {
		port.Close()
	}
	s.mu.Unlock()
	s.pumps.Wait()
}

// join gives a namespace a device on the switch, and returns its address.
func (s *Switch) join(n *Namespace) (string, error) {
	port, err := openTUN(end{n, "switch"})
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.last++
	address := netip.AddrFrom4([4]byte{10, 98, 0, s.last})
	s.ports[address] = port
	s.mu.Unlock()
	s.pumps.Go(func() { s.pump(port) })
	return address.String(), n.IP("link set lo up", fmt.Sprintf("address add %s/24 dev switch", address), up("switch"))
}

// pump passes on what comes from a port until it is closed.
func (s *Switch) pump(from *os.File) {
	defer hurry()()
	packet := make(Packet, maxPacket)
	for {
		n, err := from.Read(packet)
		if err != nil {
			return
		}
		if p := packet[:n]; n >= 20 && p[0]>>4 == 4 && !(*s.drop.Load())(p) {
			s.mu.RLock()
			if to := s.ports[p.to()]; to != nil {
				_, _ = to.Write(p) // a device that is down takes nothing
			}
			s.mu.RUnlock()
		}
	}
}
