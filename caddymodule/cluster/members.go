package cluster

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
)

const forgetPause = time.Minute // between two looks for edges to remove

// Name returns the name of this edge.
func (c *Cluster) Name() string { return c.Edge.Name }

// Leader reports whether this edge has the duties that one edge fulfills for all. Two edges may
// believe that for a moment. It may be called before Join.
func (c *Cluster) Leader() bool { return c.contact.serving() && c.LeaderName() == c.Edge.Name }

// LeaderName returns the name of the edge with the duties that one fulfills for all, "" if none
// is known.
func (c *Cluster) LeaderName() string {
	var leader store.EdgeState
	for _, e := range c.store.Edges() {
		if e.Report != nil && (leader.Name == "" || e.StartedAt.Before(leader.StartedAt)) {
			leader = e
		}
	}
	if leader.Name == c.Edge.Name && !c.contact.serving() {
		return ""
	}
	return leader.Name
}

// Draining reports whether clients and connectors shall use other edges.
func (c *Cluster) Draining() bool {
	e, _ := c.store.FindEdge(c.Edge.Name)
	return e.Draining
}

// LostSince returns since when an edge has no contact to the store, as far as this edge knows;
// the zero time if it has contact.
func (c *Cluster) LostSince(name string) time.Time {
	if name == c.Edge.Name {
		if stale := c.Stale(); stale >= contactTime {
			return time.Now().Add(-min(stale, time.Since(c.Edge.StartedAt)))
		}
		return time.Time{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lost[name]; l != nil {
		return l.since
	}
	return time.Time{}
}

// Contact returns what this edge knows of the contact of an edge to the store.
func (c *Cluster) Contact(name string) store.Contact { return store.Contact{Last: c.LostSince(name)} }

// Remove removes a lost edge that refuses all requests by now. If it comes back, it joins the
// cluster again.
func (c *Cluster) Remove(ctx context.Context, name string, _ bool) error {
	if _, err := c.store.CatchUp(ctx); err != nil {
		return err
	}
	e, _ := c.store.FindEdge(name) // the store refuses an edge that does not exist
	if e.Name = name; e.Report != nil {
		return store.Errorf(store.ErrInUse, "the edge %s is running: stop its program, and it leaves the cluster by itself", name)
	}
	if until, silent := c.silentAt(e); !silent {
		return store.Errorf(store.ErrInUse, "the edge %s has lost the store, but may accept requests until %s: remove it then",
			name, until.UTC().Format(time.RFC3339))
	}
	return c.store.RemoveLostEdge(ctx, e)
}

// forget removes edges that are lost for forgetTime while this edge is the leader.
func (c *Cluster) forget(ctx context.Context) {
	for ctx.Err() == nil {
		pause(ctx, forgetPause)
		c.forgetLost(ctx)
	}
}

// forgetLost removes such edges.
func (c *Cluster) forgetLost(ctx context.Context) {
	defer panics.Recover(c.Logger, "removing lost edges")
	for _, e := range c.store.Edges() {
		since := c.LostSince(e.Name)
		if e.Report != nil || since.IsZero() || time.Since(since) < forgetTime || !c.Leader() {
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, attemptTime)
		err := c.store.RemoveLostEdge(attempt, e)
		cancel()
		if err != nil {
			c.Logger.Warn("failed to remove a lost edge", "edge", e.Name, "error", err)
			continue
		}
		c.Logger.Info("removed an edge that is lost for long", "edge", e.Name, "since", since)
	}
}

// cutRequests ends requests that still run when this edge refuses new ones and has been without
// contact for OnStoreLoss, or for serveTime if that is longer.
func (c *Cluster) cutRequests(ctx context.Context) {
	const enough = 3 // looks: lent time has short gaps
	for overdue := enough; ctx.Err() == nil; pause(ctx, time.Second) {
		switch {
		case c.contact.serving() || c.Stale() < max(c.OnStoreLoss(), serveTime):
			overdue = 0
		case overdue < enough:
			overdue++
			if overdue == enough {
				c.Logger.Error("still without contact to the store; ending all running requests", "lost", c.LostSince(c.Edge.Name))
				c.store.CutRequests()
			}
		}
	}
}
