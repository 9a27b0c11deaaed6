package events

import (
	"sync"
	"time"
)

// losses counts lost events and reports them once in lossInterval at most.
type losses struct {
	report func(n int)

	mu    sync.Mutex
	n     int
	timer *time.Timer // nil while nothing is to be reported
}

// add counts one more.
func (l *losses) add() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	if l.timer == nil {
		l.timer = time.AfterFunc(lossInterval, l.flush)
	}
}

// flush reports the losses that were not reported yet.
func (l *losses) flush() {
	l.mu.Lock()
	n := l.n
	l.n = 0
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.mu.Unlock()
	if n > 0 {
		l.report(n)
	}
}
