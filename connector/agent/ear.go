package agent

import (
	"math"
	"runtime"
	"sync"
	"time"
)

// ear tells whether anything has come back in an attempt to connect.
type ear struct {
	spoke, came sync.Once
	since       time.Time     // when the first packet left; valid once said is closed
	said        chan struct{} // closed then
	ch          chan struct{} // closed when the first came back
}

func newEar() *ear { return &ear{said: make(chan struct{}), ch: make(chan struct{})} }

// speak is called before something is sent.
func (e *ear) speak() {
	e.spoke.Do(func() {
		e.since = time.Now()
		close(e.said)
	})
}

// hear is called after something was received.
func (e *ear) hear() { e.came.Do(func() { close(e.ch) }) }

func (e *ear) heard() bool {
	select {
	case <-e.ch:
		return true
	default:
		return false
	}
}

// silence returns for how long there has been no answer, the longest time there
// is if nothing was said yet, 0 if there was one.
func (e *ear) silence() time.Duration {
	breathe()
	if e.heard() {
		return 0
	}
	select {
	case <-e.said:
		return time.Since(e.since)
	default:
		return math.MaxInt64
	}
}

// breathe lets all goroutines run that could: where a machine is too busy, a
// packet may be there for long before it is read, and its sender is not to blame.
func breathe() {
	const hands = 8 // through which it goes, at most
	for range hands {
		runtime.Gosched()
	}
}
