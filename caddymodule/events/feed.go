package events

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/newest"
)

const (
	// buffer is how many events may wait for handlers.
	buffer = 4096

	// emitGrace is how long the end of a configuration waits for the handlers
	// of the event that is being emitted.
	emitGrace = 5 * time.Second
)

// Emitter is a configuration that passes events to its handlers. Emit returns
// after them.
type Emitter interface {
	Emit(e Event)
}

// feed passes events, one after the other, to the newest configuration that has
// started. A bounded buffer is between the two: a slow handler blocks nothing.
type feed struct {
	queue  chan Event
	pushed chan struct{} // has an item after Push
	turn   chan struct{} // has an item while handlers run
	life   context.Context
	end    context.CancelFunc
	count  func(reason string, n int)
	lost   *losses

	emitters newest.Stack[Emitter, Emitter]
}

func newFeed(o Options) *feed {
	f := &feed{
		queue: make(chan Event, buffer), pushed: make(chan struct{}, 1), turn: make(chan struct{}, 1), count: o.Lost,
		lost: &losses{report: func(n int) {
			o.Logger.Error("events were lost: their handlers are too slow", "lost", n, "buffer", buffer)
		}},
	}
	f.life, f.end = context.WithCancel(context.Background())
	go f.run()
	return f
}

// add queues an event. It returns at once: an event beyond the buffer is lost.
func (f *feed) add(e Event) {
	select {
	case f.queue <- e:
	default:
		f.count(LostByHandlers, 1)
		f.lost.add()
	}
}

// Push makes a configuration, which has started, the one that emits.
func (f *feed) Push(e Emitter) {
	f.emitters.Push(e, e)
	select {
	case f.pushed <- struct{}{}:
	default:
	}
}

// Emitters returns the number of configurations that emit.
func (f *feed) Emitters() int { return f.emitters.Len() }

// Remove removes a configuration, and waits a little for handlers that run: the
// configuration is about to end.
func (f *feed) Remove(e Emitter) {
	f.emitters.Remove(e)
	select {
	case f.turn <- struct{}{}:
		<-f.turn
	case <-time.After(emitGrace):
	}
}

// run emits the events that are added, until close.
func (f *feed) run() {
	for f.life.Err() == nil {
		select {
		case <-f.life.Done():
		case e := <-f.queue:
			f.emit(e)
		}
	}
}

// emit passes an event to the configuration in force, waiting until there is one
// or the feed is closed.
func (f *feed) emit(e Event) {
	for f.life.Err() == nil {
		f.turn <- struct{}{}
		to, ok := f.emitters.Newest()
		if ok {
			to.Emit(e)
		}
		<-f.turn
		if ok {
			return
		}
		select {
		case <-f.life.Done():
		case <-f.pushed:
		}
	}
}

// close ends the feed. It does not wait for handlers that run.
func (f *feed) close() {
	f.end()
	f.lost.flush()
}
