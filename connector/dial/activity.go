package dial

import (
	"math"
	"runtime"
	"sync"
	"time"
)

// Activity records the first packet that leaves in an attempt to connect, and the
// first that comes back.
type Activity struct {
	firstSent, firstReceived sync.Once
	since                    time.Time     // when the first packet left; valid once sent is closed
	sent, received           chan struct{} // closed then
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

// silence returns for how long there has been no answer: the maximum if nothing was
// sent yet, 0 if there was one.
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

// YieldToReaders lets all goroutines run that are ready: on a busy machine a packet
// may wait for long before it is read, and its sender is not to blame.
func YieldToReaders() {
	const maxYields = 8
	for range maxYields {
		runtime.Gosched()
	}
}
