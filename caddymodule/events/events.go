// Package events turns changes of records and tunnels into events. A [Gateway]
// delivers them to the current configuration, which may pass them to webhooks
// ([Webhook]).
package events

import (
	"log/slog"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Event is an event of the gateway.
type Event struct {
	Name string // without the module's prefix
	Data map[string]any
}

// Options configure the events of a gateway.
type Options struct {
	Store  *store.Store
	Logger *slog.Logger
	Lost   func(reason string, n int) // counts lost events
}

// The reasons for which events are lost.
const (
	LostByHandlers = "handlers" // the configuration's handlers are too slow
	LostByWebhook  = "webhook"  // the webhook's receiver is too slow
	LostRefused    = "refused"  // the receiver did not accept the event
	LostAtEnd      = "ended"    // the webhook's configuration has ended
)

// LostReasons lists all reasons.
var LostReasons = [...]string{LostByHandlers, LostByWebhook, LostRefused, LostAtEnd}

// Gateway emits the events of one gateway. It lives as long as the store is open,
// so a reload neither repeats nor loses events.
type Gateway struct {
	*sources
	*feed
}

// New starts watching a store, which must not change until New returns.
func New(o Options) *Gateway {
	f := newFeed(o)
	return &Gateway{newSources(o.Store, f.add), f}
}

// Close stops emitting events. Queued events are dropped.
func (g *Gateway) Close() {
	g.sources.close()
	g.feed.close()
}

// lossInterval is the minimum time between two log entries about losses.
const lossInterval = time.Minute

// losses counts lost events and reports them at most once per lossInterval.
type losses struct {
	report func(n int)

	mu    sync.Mutex
	n     int
	timer *time.Timer // nil while there are no losses to report
}

// add counts one lost event.
func (l *losses) add() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	if l.timer == nil {
		l.timer = time.AfterFunc(lossInterval, l.flush)
	}
}

// flush reports the losses since the last report.
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
