package lab

import (
	"encoding/binary"
	"net/netip"
)

// A Packet is an IPv4 packet.
type Packet []byte

// UDP tells whether the packet carries UDP.
func (p Packet) UDP() bool { return p.carries(17) }

// TCP tells whether the packet carries TCP.
func (p Packet) TCP() bool { return p.carries(6) }

// carries looks at the version and the protocol, RFC 791 §3.1.
func (p Packet) carries(protocol byte) bool {
	return len(p) >= 20 && p[0]>>4 == 4 && p[9] == protocol && len(p) >= p.header()+4
}

func (p Packet) header() int { return int(p[0]&0xf) * 4 }

// Source returns where a packet of UDP or TCP is from.
func (p Packet) Source() netip.AddrPort {
	h := p.header()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[12:16])), binary.BigEndian.Uint16(p[h:]))
}
