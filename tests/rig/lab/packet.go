package lab

import (
	"encoding/binary"
	"net/netip"
)

// A Packet is an IPv4 packet.
type Packet []byte

// UDP reports whether the packet carries UDP.
func (p Packet) UDP() bool { return p.carries(17) }

// TCP reports whether the packet carries TCP.
func (p Packet) TCP() bool { return p.carries(6) }

// carries looks at the version and the protocol, RFC 791 §3.1.
func (p Packet) carries(protocol byte) bool {
	return len(p) >= 20 && p[0]>>4 == 4 && p[9] == protocol && len(p) >= p.header()+4
}

func (p Packet) header() int { return int(p[0]&0xf) * 4 }

// With reports whether the packet goes from or to an address.
func (p Packet) With(a netip.Addr) bool { return p.from() == a || p.to() == a }

// Between reports whether the packet goes from one of two addresses to the other.
func (p Packet) Between(a, b netip.Addr) bool {
	from, to := p.from(), p.to()
	return from == a && to == b || from == b && to == a
}

func (p Packet) from() netip.Addr { return netip.AddrFrom4([4]byte(p[12:16])) }
func (p Packet) to() netip.Addr   { return netip.AddrFrom4([4]byte(p[16:20])) }

// Source returns where a packet of UDP or TCP is from.
func (p Packet) Source() netip.AddrPort {
	return netip.AddrPortFrom(p.from(), binary.BigEndian.Uint16(p[p.header():]))
}

// Destination returns where a packet of UDP or TCP goes.
func (p Packet) Destination() netip.AddrPort {
	return netip.AddrPortFrom(p.to(), binary.BigEndian.Uint16(p[p.header()+2:]))
}
