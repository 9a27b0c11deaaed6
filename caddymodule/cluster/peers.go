package cluster

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
)

// Answer is the answer of an edge to a peer that asks whether it has contact to the store.
type Answer struct {
	Instance string // of the edge
	HasStore bool
	// Serves is how long an edge without contact accepts requests at least.
	Serves time.Duration
	// Confirmed is the revision of the latest change in force there that edges confirm.
	Confirmed int64
}

// Answer returns the answer to a peer.
func (c *Cluster) Answer() (a Answer) {
	a.Instance = c.Edge.Instance
	a.HasStore, a.Serves = c.contact.answer()
	// Only now: a later change is not reported soon after the answer.
	c.mu.Lock()
	defer c.mu.Unlock()
	a.Confirmed = c.confirmed
	return a
}

// askPeers asks all peers again and again whether they have contact to the store.
func (c *Cluster) askPeers(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, askTime) {
		c.askAll(ctx)
	}
}

// askAll asks all peers.
func (c *Cluster) askAll(ctx context.Context) {
	defer panics.Recover(c.Logger, "asking the peers")
	for _, e := range c.store.Edges() {
		if c.Ask != nil && e.Name != c.Edge.Name {
			c.goroutines.Go(func() { c.ask(ctx, e.Edge) })
		}
	}
	c.contact.trust()
	c.logServing()
}

// logServing logs a change of whether this edge accepts requests.
func (c *Cluster) logServing() {
	now := c.contact.serving()
	if now == c.served {
		return
	}
	c.served = now
	since := c.LostSince(c.Edge.Name)
	switch {
	case !now:
		c.Logger.Error("refusing requests until there is contact to the store", "lost", since)
	case since.IsZero():
		c.Logger.Info("accepting requests, with contact to the store")
	default:
		c.Logger.Warn("accepting requests without contact to the store, as another gateway does", "lost", since)
	}
}

func (c *Cluster) ask(ctx context.Context, peer store.Edge) {
	defer panics.Recover(c.Logger, "asking a peer")
	ctx, cancel := context.WithTimeout(ctx, wordTime)
	defer cancel()
	sent := c.contact.now()
	a, err := c.Ask(ctx, peer)
	if err != nil || a.Instance != peer.Instance {
		return
	}
	c.mu.Lock()
	if a.Confirmed > c.confirmed {
		a.Serves = 0
	}
	c.mu.Unlock()
	c.contact.onAnswer(peer.Instance, sent, a.HasStore, a.Serves)
	c.contact.trust()
}
