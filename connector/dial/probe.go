package dial

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/postern-dev/postern/connector/link"
)

// maxProbe is above every single packet; longer writes are several at once.
const maxProbe = 2048

// probe is the last packet of a socket, to be sent once more. After a path was dead
// for a while, quic-go probes it only after pauses that double, up to half of the time
// that it was dead, and what a program has to say waits for that as long as the
// congestion window is full of packets that are lost. A packet that comes twice
// does no harm, and one that never came is answered: so the tunnel is alive again
// as soon as its path is. A gateway that was restarted answers with a reset.
type probe struct {
	armed atomic.Bool

	mu          sync.Mutex
	packet, oob []byte
	to          net.Addr // nil: there is no packet
}

func (p *probe) remember(b, oob []byte, to net.Addr) {
	if !p.armed.Load() || len(b) > maxProbe {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packet, p.oob, p.to = append(p.packet[:0], b...), append(p.oob[:0], oob...), to
}

// arm begins or ends to remember packets.
func (p *probe) arm(on bool) {
	if p.armed.Swap(on) == on {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = nil
}

// send sends the packet, if there is one. If that fails, so will all that quic-go
// sends itself.
func (p *probe) send(socket Socket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if to, ok := p.to.(*net.UDPAddr); ok {
		_, _, _ = socket.WriteMsgUDP(p.packet, p.oob, to)
	}
}

// Conn is a connection to a gateway.
type Conn struct {
	*link.Conn
	socket *patientSocket // over UDP
	bbr    bool           // this side of the WebSocket has it; the other side is unknown
}

// ArmProbe begins or ends to remember packets for ProbePath, which only UDP has: it
// costs a copy of each.
func (c *Conn) ArmProbe(on bool) {
	if c.socket != nil {
		c.socket.probe.arm(on)
	}
}

// ProbePath sends the last packet once more, if there is one.
func (c *Conn) ProbePath() {
	if c.socket != nil {
		c.socket.probe.send(c.socket.Socket)
	}
}
