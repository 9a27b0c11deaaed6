package fair

import "net/netip"

// Budget divides a number of identical units among networks. The share of each
// network shrinks as more networks compete, so another network can always take some.
// The caller must hold a lock. The zero value has no units.
type Budget struct {
	Total int // number of units

	used      int
	byNetwork map[netip.Prefix]int
}

// Take takes n units for a client and reports whether that many were free, both in
// total and for each of its networks. A /24 or /48 may have half of the free units,
// the networks inside it a third and a quarter. Every network may have one unit as
// long as any is free.
func (b *Budget) Take(from Networks, n int) bool {
	free := b.Total - b.used
	if n > free {
		return false
	}
	for i, p := range from {
		if b.byNetwork[p]+n > max(free/(i+2), 1) {
			return false
		}
	}
	if b.byNetwork == nil {
		b.byNetwork = make(map[netip.Prefix]int)
	}
	b.used += n
	for _, p := range from {
		b.byNetwork[p] += n
	}
	return true
}

// Return returns n units that Take took for a client.
func (b *Budget) Return(from Networks, n int) {
	b.used -= n
	for _, p := range from {
		if b.byNetwork[p] -= n; b.byNetwork[p] == 0 {
			delete(b.byNetwork, p)
		}
	}
}

// Used returns the total number of units taken.
func (b *Budget) Used() int { return b.used }

// UsedBy returns the number of units that a network has.
func (b *Budget) UsedBy(p netip.Prefix) int { return b.byNetwork[p] }
