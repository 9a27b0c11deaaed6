package events

import (
	"context"
	"log/slog"
	"time"

	"github.com/postern-dev/postern/caddymodule/newest"
	"github.com/postern-dev/postern/connector/logs"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	// buffer is the number of events that may wait for handlers.
	buffer = 4096

	// emitGrace is how long a configuration that ends waits for the handlers of
	// the event being emitted.
	emitGrace = 5 * time.Second
)

// Emitter is a configuration that passes events to its handlers. Emit returns after
// the handlers have returned.
type Emitter interface {
	Emit(e Event)
}

// feed passes events one by one to the newest started configuration. They are
// queued in a bounded buffer, so slow handlers do not block the sources.
type feed struct {
	queue    chan Event
	pushed   chan struct{} // receives an item after Push
	emitting chan struct{} // contains an item while handlers run
	ctx      context.Context
	cancel   context.CancelFunc
	log      *slog.Logger
	count    func(reason string, n int)
	lost     logs.Sampler[string]

	emitters newest.Stack[Emitter]
}

func newFeed(o Options) *feed {
	f := &feed{
		queue: make(chan Event, buffer), pushed: make(chan struct{}, 1), emitting: make(chan struct{}, 1),
		log: o.Logger, count: o.Lost,
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	go f.run()
	return f
}

// add queues an event without blocking. If the buffer is full, the event is lost.
func (f *feed) add(e Event) {
	select {
	case f.queue <- e:
	default:
		f.count(LostByHandlers, 1)
		f.lost.Log(f.log, slog.LevelError, LostByHandlers, time.Now(), "failed to queue an event: its handlers are too slow",
			"buffer", buffer)
	}
}

// Push makes a started configuration the emitter.
func (f *feed) Push(e Emitter) {
	f.emitters.Push(e)
	wait.Wake(f.pushed, struct{}{})
}

// Remove removes a configuration that is about to end, and waits up to emitGrace
// for running handlers.
func (f *feed) Remove(e Emitter) {
	f.emitters.Remove(e)
	select {
	case f.emitting <- struct{}{}:
		<-f.emitting
	case <-time.After(emitGrace):
	}
}

// run emits queued events until close.
func (f *feed) run() {
	for f.ctx.Err() == nil {
		select {
		case <-f.ctx.Done():
		case e := <-f.queue:
			f.emit(e)
		}
	}
}

// emit passes an event to the current configuration. It waits until a configuration is
// started or the feed is closed.
func (f *feed) emit(e Event) {
	for f.ctx.Err() == nil {
		if f.tryEmit(e) {
			return
		}
		select {
		case <-f.ctx.Done():
		case <-f.pushed:
		}
	}
}

// tryEmit passes an event to the current configuration. It returns false if none is started.
func (f *feed) tryEmit(e Event) (emitted bool) {
	f.emitting <- struct{}{}
	defer func() { <-f.emitting }()
	emitter, ok := f.emitters.Newest()
	if ok {
		defer panics.Recover(f.log, "emitting an event")
		emitted = true
		emitter.Emit(e)
	}
	return emitted
}

// close ends the feed. It does not wait for running handlers.
func (f *feed) close() { f.cancel() }
