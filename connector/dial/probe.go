package dial

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/postern-dev/postern/connector/link"
)

// maxProbe is larger than any packet. Longer writes contain several packets.
const maxProbe = 2048

// probe is the last packet of a socket, to be sent again. quic-go probes a dead path with
// pauses that double, and meanwhile sends nothing else if the congestion window is full.
// A repeated packet does no harm, and recovers the tunnel as soon as its path works
// again. A restarted gateway answers it with a reset.
type probe struct {
	armed atomic.Bool

	mu          sync.Mutex
	packet, oob []byte
	to          net.Addr // nil: no packet
}

func (p *probe) remember(b, oob []byte, to net.Addr) {
	if !p.armed.Load() || len(b) > maxProbe {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packet, p.oob, p.to = append(p.packet[:0], b...), append(p.oob[:0], oob...), to
}

// arm starts or stops recording packets.
func (p *probe) arm(on bool) {
	if p.armed.Swap(on) == on {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = nil
}

// send sends the packet, if there is one. Errors are ignored, as quic-go's own packets
// would fail too.
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
	bbr    bool           // this side of the WebSocket uses BBR
}

// ArmProbe starts or stops recording packets for ProbePath. Recording copies each packet.
// It has no effect over a WebSocket.
func (c *Conn) ArmProbe(on bool) {
	if c.socket != nil {
		c.socket.probe.arm(on)
	}
}

// ProbePath sends the last recorded packet again, if there is one.
func (c *Conn) ProbePath() {
	if c.socket != nil {
		c.socket.probe.send(c.socket.Socket)
	}
}
