package fair

import "net/netip"

// Budget divides a number of equal things among networks. The more networks there
// are that take all they can get, the less each of them has, and there is room for
// one more. The caller holds a lock. The zero value has nothing to give.
type Budget struct {
	Most int // in all

	used int
	of   map[netip.Prefix]int
}

// Take takes n for a client, and reports whether there were that many for it: in
// all, and for each of its networks. A /24 or /48 may have half of what is free, the
// networks in it a third and a quarter; one is for everybody while there is any.
func (b *Budget) Take(from Networks, n int) bool {
	free := b.Most - b.used
	if n > free {
		return false
	}
	for i, p := range from {
		if b.of[p]+n > max(free/(i+2), 1) {
			return false
		}
	}
	if b.of == nil {
		b.of = make(map[netip.Prefix]int)
	}
	b.used += n
	for _, p := range from {
		b.of[p] += n
	}
	return true
}

// Give gives back n that Take took for a client.
func (b *Budget) Give(from Networks, n int) {
	b.used -= n
	for _, p := range from {
		if b.of[p] -= n; b.of[p] == 0 {
			delete(b.of, p)
		}
	}
}

// Used returns how many are taken in all.
func (b *Budget) Used() int { return b.used }

// Of returns how many a network has.
func (b *Budget) Of(p netip.Prefix) int { return b.of[p] }
