package dial

import (
	"math"
	"runtime"
	"sync"
	"time"
)

// Activity records the first packet sent and the first packet received in an attempt to
// connect.
type Activity struct {
	firstSent, firstReceived sync.Once
	since                    time.Time     // of the first packet sent; valid once sent is closed
	sent, received           chan struct{} // closed at the first packet
}

func newActivity() *Activity {
	return &Activity{sent: make(chan struct{}), received: make(chan struct{})}
}

// sending is called before something is sent.
func (a *Activity) sending() {
	a.firstSent.Do(func() {
		a.since = time.Now()
		close(a.sent)
	})
}

// receive is called after something was received.
func (a *Activity) receive() { a.firstReceived.Do(func() { close(a.received) }) }

// answered reports whether anything has come back.
func (a *Activity) answered() bool {
	select {
	case <-a.received:
		return true
	default:
		return false
	}
}

// silence returns the time since the first packet was sent without an answer. It is 0
// after an answer, and the maximum if nothing was sent yet.
func (a *Activity) silence() time.Duration {
	YieldToReaders()
	if a.answered() {
		return 0
	}
	select {
	case <-a.sent:
		return time.Since(a.since)
	default:
		return math.MaxInt64
	}
}

// YieldToReaders lets other goroutines run. On a busy machine, a packet that has arrived
// may wait for its reader.
func YieldToReaders() {
	const maxYields = 8
	for range maxYields {
		runtime.Gosched()
	}
}
