// Package events turns changes of records and tunnels into events. A [Gateway]
// delivers them to the current configuration, which may pass them to webhooks
// ([Webhook]).
package events

import (
	"log/slog"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Event is an event of the gateway.
type Event struct {
	Name  string // without the module's prefix
	Data  map[string]any
	Alert Alert
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
