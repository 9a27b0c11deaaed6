package tunnel

import (
	"context"
	"errors"
)

// Limits on connections without a valid hello, across all addresses.
const (
	// maxPending is how many connections may. One over QUIC takes some 100 KB, and
	// 350 KB if it fills all that it may.
	maxPending = 2048
	// maxStrangers is how many of these may have shown that they are not known.
	// The rest is for those who have not got so far yet.
	maxStrangers = maxPending * 3 / 4
	// maxKnown is how many connections of known connectors may wait, besides those.
	maxKnown = 512
	// knownPerConnector is how many of one connector: it dials over two transports,
	// and to several addresses. Its preauthentication may have been overheard.
	knownPerConnector = 4
	// helloBytes is how much of their hellos is read, beyond the few KiB of each
	// that those of nearly all connectors need. It is three times that in memory
	// while a message is decoded.
	helloBytes = 32 << 20
)

// errHelloBudget refuses a large hello.
var errHelloBudget = errors.New("too many large hellos at a time")

// grow takes more of the budget for the hello of the place's connection.
func (l *place) grow(bytes int) error {
	l.pending.mu.Lock()
	defer l.pending.mu.Unlock()
	if l.freed || !l.pending.hellos.Take(l.from, bytes) {
		return errHelloBudget
	}
	l.hello += bytes
	return nil
}

// shrink gives back what grow took. The caller holds the lock.
func (l *place) shrink() {
	if l.hello > 0 {
		l.pending.hellos.Give(l.from, l.hello)
		l.hello = 0
	}
}

// counter returns what counts the bytes of a connection's hello; conn is its
// context.
func counter(conn context.Context) func(bytes int) error {
	if l, ok := conn.Value(placeKey{}).(*place); ok {
		return l.grow
	}
	return func(int) error { return nil }
}
