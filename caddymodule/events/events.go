// Package events turns changes of records and tunnels into events, and delivers
// them: to the configuration in force ([Gateway]), and from there to webhooks
// ([Webhook]).
package events

import (
	"log/slog"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Event is something that has happened.
type Event struct {
	Name string // without the module's
	Data map[string]any
}

// Options of a gateway's events.
type Options struct {
	Store  *store.Store
	Logger *slog.Logger
	Lost   func(reason string, n int) // counts lost events
}

// The reasons for which events are lost.
const (
	LostByHandlers = "handlers" // the handlers of the configuration are too slow
	LostByWebhook  = "webhook"  // the receiver of a webhook is too slow
	LostRefused    = "refused"  // the receiver has not accepted it
	LostAtEnd      = "ended"    // the configuration of the webhook has ended
)

// LostReasons are all reasons.
var LostReasons = [...]string{LostByHandlers, LostByWebhook, LostRefused, LostAtEnd}

// Gateway emits the events of one gateway. It lives as long as the store is
// open, so that a reload repeats and forgets nothing.
type Gateway struct {
	*sources
	*feed
}

// New begins to watch a store that nothing changes yet.
func New(o Options) *Gateway {
	f := newFeed(o)
	return &Gateway{newSources(o.Store, f.add), f}
}

// Close ends the events. Those that wait are dropped.
func (g *Gateway) Close() {
	g.sources.close()
	g.feed.close()
}

// lossInterval is how often losses are logged at most.
const lossInterval = time.Minute

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
