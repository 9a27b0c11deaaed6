package tunnel

import (
	"context"
	"errors"
	"net/netip"
)

// What may wait for a valid hello, over all addresses together. Nobody has shown
// by then that he is a connector of this gateway.
const (
	// maxPending is how many connections may. One over QUIC takes some 100 KB, and
	// 350 KB if it fills all that it may.
	maxPending = 2048
	// helloBytes is how much of their hellos is read, beyond the few KiB of each
	// that those of nearly all connectors need. It is three times that in memory
	// while a message is decoded.
	helloBytes = 32 << 20
)

// errHelloBudget refuses a large hello.
var errHelloBudget = errors.New("too many large hellos at a time")

// share is how much one address may have of a budget that all together have used:
// half of what is free. The more addresses there are that take all they can get,
// the less each of them has, and there is always room for one more. A single one
// gets a third.
func share(most, used int) int { return (most - used) / 2 }

// room tells how many connections an address may have now, most by itself.
func (p *pending) room(most int) int {
	if p.total >= maxPending {
		return 0
	}
	return min(most, max(share(maxPending, p.total), 1))
}

// grow takes more of the budget for the hello of the slot's connection.
func (s *slot) grow(bytes int) error {
	s.pending.mu.Lock()
	defer s.pending.mu.Unlock()
	p := s.pending
	if s.freed || p.hellos+bytes > helloBytes || p.helloOf[s.addr]+bytes > share(helloBytes, p.hellos) {
		return errHelloBudget
	}
	if p.helloOf == nil {
		p.helloOf = make(map[netip.Addr]int)
	}
	s.hello += bytes
	p.hellos += bytes
	p.helloOf[s.addr] += bytes
	return nil
}

// shrink gives back what grow took. The caller holds the lock.
func (s *slot) shrink() {
	if s.hello == 0 {
		return
	}
	p := s.pending
	p.hellos -= s.hello
	if p.helloOf[s.addr] -= s.hello; p.helloOf[s.addr] == 0 {
		delete(p.helloOf, s.addr)
	}
	s.hello = 0
}

// counter returns what counts the bytes of a connection's hello; conn is its
// context.
func counter(conn context.Context) func(bytes int) error {
	if s, ok := conn.Value(slotKey{}).(*slot); ok {
		return s.grow
	}
	return func(int) error { return nil }
}
