package cluster

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// confirmTimeout is how long a write waits for the edges.
const confirmTimeout = 5 * time.Second

// Confirm implements store.Cluster. It fails after confirmTimeout.
func (c *Cluster) Confirm(ctx context.Context, revision int64) (err error) {
	began := time.Now()
	defer func() {
		if c.Waited != nil {
			c.Waited(time.Since(began), err == nil)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
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

// pending returns the edges that may still act on the state before revision. The view of this edge
// has reached revision.
func (c *Cluster) pending(revision int64) (pending []store.PendingEdge) {
	for _, e := range c.store.Edges() {
		behind := e.Report == nil && c.hadReport(e) || e.Report != nil && e.Report.Applied < revision
		if behind && !e.Is(c.Edge) {
			pending = append(pending, store.PendingEdge{Edge: e.Name, Until: c.reportedAt(e).Add(slow(e.OnStoreLoss))})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.expired {
		if time.Now().Before(p.serves) && !p.Is(c.Edge) {
			pending = append(pending, store.PendingEdge{Edge: p.Name, Until: p.serves})
		}
	}
	for _, name := range c.store.UnreadableEdges() { // records of a later version of Postern
		pending = append(pending, store.PendingEdge{Edge: name, Until: time.Now().Add(slow(MaxStoreLoss))})
	}
	return pending
}

// hadReport reports whether an edge without a report had one when observe was last called. A call for the
// loss of the report will follow.
func (c *Cluster) hadReport(e store.EdgeState) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.observed[e.Name]
	return before.report > 0 && before.process.Is(e.Edge)
}
