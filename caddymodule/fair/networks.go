package fair

import "net/netip"

// Networks are the networks that contain an address, widest first.
type Networks []netip.Prefix

// The prefix lengths of networks, widest first. A customer has an IPv4 address, and
// a /64, /56 or /48 of IPv6. A /24 is the smallest network routed between providers.
var (
	bits4 = []int{24, 32}
	bits6 = []int{48, 56, 64}
)

// Parse returns the networks of a host without port: /24 and /32, or /48, /56 and /64.
// All hosts that are not addresses share one network.
func Parse(host string) Networks {
	addr, _ := netip.ParseAddr(host)
	addr = addr.Unmap().WithZone("")
	bits := bits6
	switch {
	case !addr.IsValid():
		return Networks{{}}
	case addr.Is4():
		bits = bits4
	}
	networks := make(Networks, len(bits))
	for i, n := range bits {
		networks[i], _ = addr.Prefix(n) // no error: n is in range
	}
	return networks
}

// Widest returns the /24 or the /48.
func (n Networks) Widest() netip.Prefix { return n[0] }

// Narrowest returns the IPv4 address or the /64.
func (n Networks) Narrowest() netip.Prefix { return n[len(n)-1] }
