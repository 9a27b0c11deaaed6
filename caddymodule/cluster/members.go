package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	forgetTime  = time.Hour   // until the leader removes the record of a lost edge
	forgetPause = time.Minute // between two looks for such edges
)

// seen is what this edge has last seen of an edge.
type seen struct {
	process store.Edge
	record  int64 // revisions
	report  int64
	at      time.Time // of the last report; without one, when that was noticed
}

// ended is a process whose lease has ended. etcd can end it early: a leader that was stopped for longer
// than the lease ends it by its former times.
type ended struct {
	store.Edge
	serves time.Time // until when it may accept requests: L after its last report, by a slow clock
}

// note notes a change of an edge or of its report.
func (c *Cluster) note(name string) {
	defer c.changed.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.store.FindEdge(name)                                // with the lock: no other call has seen a later state
	if name == c.Edge.Name && (!e.Is(c.Edge) || e.Report == nil) { // others no longer wait for this edge
		c.contact.refuse()
		wait.Wake(c.wake, struct{}{})
	}
	c.ended = slices.DeleteFunc(c.ended, func(p ended) bool {
		reports := p.Is(e.Edge) && e.Report != nil
		return p.Name == name && !ok || reports || e.Succeeds(p.Edge) || !time.Now().Before(p.serves)
	})
	was := c.seen[name]
	now := seen{process: e.Edge, record: e.Revision, report: e.Reported, at: was.at}
	switch {
	case !ok:
		delete(c.seen, name)
		return
	case was.at.IsZero(), now.report > 0 && now.report != was.report, now.report == 0 && now.record != was.record:
		now.at = time.Now()
	}
	// Without contact, the last report may be older than it looks.
	if was.report > 0 && now.report == 0 && was.process.Is(e.Edge) && c.InContact() {
		c.ended = append(c.ended, ended{e.Edge, c.latest(was).Add(e.OnStoreLoss * 9 / 8)})
	}
	c.seen[name] = now
}

// reportedAt returns when an edge last reported.
func (c *Cluster) reportedAt(e store.EdgeState) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.seen[e.Name]; ok {
		return c.latest(s)
	}
	return time.Now() // note has not been called yet
}

// latest returns until when an edge may have had contact without a later report: as long as the store has
// no space, there are none. The caller holds the lock.
func (c *Cluster) latest(s seen) time.Time {
	if s.report == 0 || c.full.Before(s.at) {
		return s.at
	}
	return c.full
}

// mayServe reports whether an edge without a report may accept requests, as its lease ended early.
func (c *Cluster) mayServe(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.ended, func(p ended) bool { return p.Name == name && time.Now().Before(p.serves) })
}

// Name returns the name of this edge.
func (c *Cluster) Name() string { return c.Edge.Name }

// Leader reports whether this edge has the duties that one edge fulfills for all. Two edges may
// believe that for a moment. It may be called before Join.
func (c *Cluster) Leader() bool { return c.InContact() && c.LeaderName() == c.Edge.Name }

// LeaderName returns the name of the edge with the duties that one fulfills for all, "" if none
// is known: that of the edges with contact which has started first.
func (c *Cluster) LeaderName() string {
	var leader store.EdgeState
	for _, e := range c.store.Edges() {
		if known := c.Contact(e.Name); known.Unknown || !known.Last.IsZero() {
			continue
		}
		if leader.Name == "" || e.StartedAt.Before(leader.StartedAt) {
			leader = e
		}
	}
	return leader.Name
}

// Draining reports whether clients and connectors shall use other edges.
func (c *Cluster) Draining() bool {
	e, _ := c.store.FindEdge(c.Edge.Name)
	return e.Draining
}

// InContact implements store.Cluster.
func (c *Cluster) InContact() bool {
	return c.contact.serving() && c.contact.age() < fresh(c.Edge.OnStoreLoss)
}

// Contact returns what this edge knows of the contact of an edge to the store.
func (c *Cluster) Contact(name string) store.Contact {
	last, l, serving := time.Now().Add(-c.contact.age()), c.Edge.OnStoreLoss, c.contact.serving()
	if name != c.Edge.Name {
		if !c.InContact() {
			return store.Contact{Unknown: true}
		}
		e, _ := c.store.FindEdge(name)
		last, l, serving = c.reportedAt(e), e.OnStoreLoss, e.Report != nil
	}
	known := store.Contact{Last: last, Until: last}
	if serving {
		known.Until = last.Add(l)
	}
	if serving && time.Since(last) < fresh(l) {
		known.Last = time.Time{}
	}
	return known
}

// Remove removes an edge that accepts no requests. If stopped says that its program has certainly
// stopped, it removes the report, too: a program that runs after all accepts requests until it notices
// that, and joins again.
func (c *Cluster) Remove(ctx context.Context, name string, stopped bool) error {
	if err := c.store.CatchUp(ctx); err != nil {
		return err
	}
	e, _ := c.store.FindEdge(name) // the store refuses an edge that does not exist
	e.Name = name
	at := c.reportedAt(e)
	switch {
	case e.Is(c.Edge):
		return store.Errorf(store.ErrInUse,
			"the edge %s is running: it is this gateway. Stop it, and it leaves the cluster", name)
	case e.Report == nil && !c.mayServe(name), stopped:
		return c.store.RemoveLostEdge(ctx, e)
	case time.Since(at) < fresh(e.OnStoreLoss):
		return store.Errorf(store.ErrInUse, "the edge %s is running: "+
			"stop its program, and it leaves the cluster by itself. If it was killed, it can be removed after %s, "+
			"or at once with `caddy gateway edge remove %s --stopped`",
			name, shown(at.Add(e.LeaseTime())), name)
	}
	return store.Errorf(store.ErrInUse, "the edge %s has lost the store, but may accept requests until %s, "+
		"and can be removed after %s. "+
		"If its program has certainly stopped, remove it at once with `caddy gateway edge remove %s --stopped`",
		name, shown(at.Add(e.OnStoreLoss)), shown(at.Add(e.LeaseTime())), name)
}

// shown returns a time for users.
func shown(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// forget removes edges that are lost for forgetTime while this edge is the leader.
func (c *Cluster) forget(ctx context.Context) {
	for wait.For(ctx, forgetPause) == nil {
		c.forgetLost(ctx)
	}
}

// forgetLost removes such edges.
func (c *Cluster) forgetLost(ctx context.Context) {
	defer panics.Recover(c.Logger, "removing lost edges")
	for _, e := range c.store.Edges() {
		since := c.reportedAt(e)
		if e.Report != nil || time.Since(since) < forgetTime || !c.Leader() {
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, contactTime)
		err := c.store.RemoveLostEdge(attempt, e)
		cancel()
		if err != nil {
			c.Logger.Warn("failed to remove a lost edge", "edge", e.Name, "error", err)
			continue
		}
		c.Logger.Info("removed an edge that is lost for long", "edge", e.Name, "since", since)
	}
}
