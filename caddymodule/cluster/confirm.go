package cluster

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// confirmTime is how long a write waits for the edges.
const confirmTime = 5 * time.Second

// Confirm implements store.Cluster. It gives up after 5 s.
func (c *Cluster) Confirm(ctx context.Context, revision int64) (err error) {
	began := time.Now()
	defer func() {
		if c.Waited != nil {
			c.Waited(time.Since(began), err == nil)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	for {
		changed := c.changed.Next()
		pending := c.pending(revision)
		if len(pending) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &store.Unconfirmed{Pending: pending}
		}
	}
}

// pending returns the edges that may act on the state before revision, which the view has.
func (c *Cluster) pending(revision int64) (pending []store.PendingEdge) {
	for _, e := range c.store.Edges() {
		waits := e.Report == nil && c.reports(e) || e.Report != nil && e.Report.Applied < revision
		if waits && !e.Is(c.Edge) {
			pending = append(pending, store.PendingEdge{Edge: e.Name, Until: c.reportedAt(e).Add(e.OnStoreLoss)})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.ended {
		if time.Now().Before(p.serves) && !p.Is(c.Edge) {
			pending = append(pending, store.PendingEdge{Edge: p.Name, Until: p.serves})
		}
	}
	for _, name := range c.store.UnreadEdges() { // of a later version: nothing is known of it
		pending = append(pending, store.PendingEdge{Edge: name, Until: time.Now().Add(MaxStoreLoss)})
	}
	return pending
}

// reports reports whether an edge without a report had one when note was last called, which is to be called
// again.
func (c *Cluster) reports(e store.EdgeState) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.seen[e.Name]
	return was.report > 0 && was.process.Is(e.Edge)
}
