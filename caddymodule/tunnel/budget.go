package tunnel

import (
	"context"
	"errors"
)

// Limits on connections without a valid hello, across all addresses.
const (
	// maxPending bounds these connections. A QUIC connection takes some 100 KB, and
	// at most 350 KB.
	maxPending = 2048
	// maxStrangers bounds the connections without a valid preauthentication. The
	// rest of maxPending is for connections before their ClientHello.
	maxStrangers = maxPending * 3 / 4
	// maxKnown bounds the connections of known connectors, in addition to
	// maxPending.
	maxKnown = 512
	// knownPerConnector bounds the connections of one known connector. It dials
	// over two transports and to several addresses; its preauthentication may also
	// have been intercepted.
	knownPerConnector = 4
	// helloBytes bounds the total size of hellos, not counting the first few KiB of
	// each, which suffice for nearly all. Decoding takes three times as much memory.
	helloBytes = 32 << 20
)

// errHelloBudget rejects a large hello.
var errHelloBudget = errors.New("too many large hellos at a time")

// grow takes bytes of the budget for the connection's hello.
func (l *place) grow(bytes int) error {
	l.pending.mu.Lock()
	defer l.pending.mu.Unlock()
	if l.freed || !l.pending.hellos.Take(l.from, bytes) {
		return errHelloBudget
	}
	l.hello += bytes
	return nil
}

// shrink returns the bytes taken by grow. The caller holds the lock.
func (l *place) shrink() {
	if l.hello > 0 {
		l.pending.hellos.Give(l.from, l.hello)
		l.hello = 0
	}
}

// counter returns the function that counts the bytes of a connection's hello. conn
// is the context of the connection.
func counter(conn context.Context) func(bytes int) error {
	if l, ok := conn.Value(placeKey{}).(*place); ok {
		return l.grow
	}
	return func(int) error { return nil }
}
