package dial

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/postern-dev/postern/connector/link"
)

// maxProbe is above every single packet; longer writes are several at once.
const maxProbe = 2048

// probeSocket can send its last packet once more. After a path was dead for a
// while, quic-go probes it only after pauses that double, up to half of the time
// that it was dead, and what a program has to say waits for that as long as the
// congestion window is full of packets that are lost. A packet that comes twice
// does no harm, and one that never came is answered: so the tunnel is alive again
// as soon as its path is. A gateway that was restarted answers with a reset.
type probeSocket struct {
	Socket
	armed atomic.Bool

	mu          sync.Mutex
	packet, oob []byte
	to          *net.UDPAddr // nil: there is no packet
}

// WriteMsgUDP implements [quic.OOBCapablePacketConn].
func (s *probeSocket) WriteMsgUDP(b, oob []byte, to *net.UDPAddr) (n, oobn int, err error) {
	if s.armed.Load() {
		s.remember(b, oob, to)
	}
	return s.Socket.WriteMsgUDP(b, oob, to)
}

// WriteTo implements [net.PacketConn].
func (s *probeSocket) WriteTo(b []byte, to net.Addr) (int, error) {
	if udp, ok := to.(*net.UDPAddr); ok && s.armed.Load() {
		s.remember(b, nil, udp)
	}
	return s.Socket.WriteTo(b, to)
}

func (s *probeSocket) remember(b, oob []byte, to *net.UDPAddr) {
	if len(b) > maxProbe {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packet, s.oob, s.to = append(s.packet[:0], b...), append(s.oob[:0], oob...), to
}

// arm begins or ends to remember packets: it costs a copy of each.
func (s *probeSocket) arm(on bool) {
	if s.armed.Swap(on) == on {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = nil
}

// again sends the last packet once more, if there is one. If that fails, so will
// whatever quic-go sends itself.
func (s *probeSocket) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to != nil {
		_, _, _ = s.Socket.WriteMsgUDP(s.packet, s.oob, s.to)
	}
}

// Conn is a connection to a gateway.
type Conn struct {
	*link.Conn
	probe *probeSocket // over UDP
	bbr   bool         // this side of the WebSocket has it; the other side is unknown
}

// ArmProbe begins or ends to remember packets for ProbePath, which only UDP has: it
// costs a copy of each.
func (c *Conn) ArmProbe(on bool) {
	if c.probe != nil {
		c.probe.arm(on)
	}
}

// ProbePath sends the last packet once more, if there is one.
func (c *Conn) ProbePath() {
	if c.probe != nil {
		c.probe.again()
	}
}
