package caddymodule

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	// eventBuffer is how many events may wait for handlers.
	eventBuffer = 4096

	// emitGrace is how long the end of a configuration waits for the handlers
	// of the event that it is just emitting.
	emitGrace = 5 * time.Second

	// lossInterval is how often losses are logged at most.
	lossInterval = time.Minute
)

// gatewayEvents tell Caddy's events app what happens in a gateway. They live as
// long as its store is open, so that a reload repeats and forgets nothing.
type gatewayEvents struct {
	*eventSources
	*eventFeed
}

// newEvents begins to watch a store, which nobody changes yet.
func newEvents(st *store.Store, logger *slog.Logger) *gatewayEvents {
	feed := newEventFeed(logger)
	return &gatewayEvents{newEventSources(st, feed.add), feed}
}

// close ends both. What has not been told by then is not told.
func (e *gatewayEvents) close() {
	e.eventSources.close()
	e.eventFeed.close()
}

// gatewayEvent is something that has happened.
type gatewayEvent struct {
	name string
	data map[string]any
}

// emitter is a configuration that hands events to its handlers. It returns when
// they have.
type emitter interface {
	emit(e gatewayEvent)
}

// eventFeed hands events over, one after the other, to the newest configuration
// that has started. Between the first and its handlers is a bounded buffer: a
// slow handler holds nobody.
type eventFeed struct {
	queue   chan gatewayEvent
	entered chan struct{} // has an item after enter
	closing chan struct{}
	lost    *losses

	mu       sync.Mutex
	emitters []emitter // the newest last
	emitting emitter   // whose handlers run, nil if none do
	ended    chan struct{}
}

func newEventFeed(logger *slog.Logger) *eventFeed {
	f := &eventFeed{
		queue: make(chan gatewayEvent, eventBuffer), entered: make(chan struct{}, 1), closing: make(chan struct{}),
		lost: newLosses(func(n int) {
			logger.Error("events were lost: their handlers are too slow", "lost", n, "buffer", eventBuffer)
		}),
	}
	go f.run()
	return f
}

// add has an event told. It returns at once: if too many wait, the event is
// lost.
func (f *eventFeed) add(e gatewayEvent) {
	select {
	case f.queue <- e:
	default:
		observeEventsLost(lostByHandlers, 1)
		f.lost.add()
	}
}

// enter makes a configuration, which has started, the one that emits.
func (f *eventFeed) enter(e emitter) {
	f.mu.Lock()
	f.emitters = append(f.emitters, e)
	f.mu.Unlock()
	select {
	case f.entered <- struct{}{}:
	default:
	}
}

// leave ends what enter began, and waits a little for handlers that run: soon
// their configuration is no more.
func (f *eventFeed) leave(e emitter) {
	f.mu.Lock()
	f.emitters = slices.DeleteFunc(f.emitters, func(o emitter) bool { return o == e })
	running, ended := f.emitting == e, f.ended
	f.mu.Unlock()
	if !running {
		return
	}
	select {
	case <-ended:
	case <-time.After(emitGrace):
	}
}

// run tells what is added, until close.
func (f *eventFeed) run() {
	for {
		select {
		case <-f.closing:
			return
		case e := <-f.queue:
			if !f.tell(e) {
				return
			}
		}
	}
}

// tell hands an event to the configuration in force, waiting until there is
// one; false says that the feed is closed.
func (f *eventFeed) tell(e gatewayEvent) bool {
	to := f.begin()
	for to == nil {
		select {
		case <-f.closing:
			return false
		case <-f.entered:
			to = f.begin()
		}
	}
	to.emit(e)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.emitting = nil
	close(f.ended)
	select {
	case <-f.closing:
		return false
	default:
		return true
	}
}

// begin notes that the handlers of the configuration in force are about to run.
func (f *eventFeed) begin() emitter {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.emitters); n > 0 {
		f.emitting, f.ended = f.emitters[n-1], make(chan struct{})
		return f.emitting
	}
	return nil
}

// close ends the feed. It does not wait for handlers that run.
func (f *eventFeed) close() {
	close(f.closing)
	f.lost.close()
}

// losses counts what is lost and reports it, once in lossInterval at most.
type losses struct {
	report func(n int)

	mu    sync.Mutex
	n     int
	timer *time.Timer // nil while nothing is to be reported
}

func newLosses(report func(n int)) *losses { return &losses{report: report} }

// add counts one more.
func (l *losses) add() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	if l.timer == nil {
		l.timer = time.AfterFunc(lossInterval, l.close)
	}
}

// close reports what was not reported yet.
func (l *losses) close() {
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
