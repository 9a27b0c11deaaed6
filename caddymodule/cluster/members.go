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
	forgetPause = time.Minute // between two searches for such edges
)

// observation is the state of an edge as this edge has last seen it.
type observation struct {
	process store.Edge
	record  int64 // revisions
	report  int64
	time    time.Time // when the last report, or that there is none, was first seen
}

// expired is a process whose lease has ended, possibly too early: see the package comment.
type expired struct {
	store.Edge
	serves time.Time // it may accept requests until then
}

// observe applies a change of an edge or of its report.
func (c *Cluster) observe(name string) {
	defer c.changed.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.store.FindEdge(name)                                // with the lock, so that calls see states in order
	if name == c.Edge.Name && (!e.Is(c.Edge) || e.Report == nil) { // writers no longer wait for this edge
		c.contact.refuse()
		wait.Wake(c.wake, struct{}{})
	}
	c.expired = slices.DeleteFunc(c.expired, func(p expired) bool {
		reports := p.Is(e.Edge) && e.Report != nil
		return p.Name == name && !ok || reports || e.Succeeds(p.Edge) || !time.Now().Before(p.serves)
	})
	before := c.observed[name]
	now := observation{process: e.Edge, record: e.Revision, report: e.ReportRevision, time: before.time}
	reported := now.report > 0 && now.report != before.report
	switch {
	case !ok:
		delete(c.observed, name)
		return
	case before.time.IsZero(), reported, now.report == 0 && now.record != before.record:
		now.time = time.Now()
	}
	// Without a recent contact, before.time can be later than the report. InContact does not show that, as the lease of
	// this edge may have ended a moment before.
	lost := before.report > 0 && now.report == 0 && before.process.Is(e.Edge)
	if lost && c.contact.age() < lostAfter(c.Edge.OnStoreLoss) {
		c.expired = append(c.expired, expired{e.Edge, c.lastContact(before).Add(slow(e.OnStoreLoss))})
	}
	c.observed[name] = now
}

// reportedAt returns when an edge last reported.
func (c *Cluster) reportedAt(e store.EdgeState) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.observed[e.Name]; ok {
		return c.lastContact(s)
	}
	return time.Now() // observe has not been called yet
}

// lastContact returns the last time at which an edge may have had contact. That is the time of its report,
// unless the store had no space for later ones. The caller holds the lock.
func (c *Cluster) lastContact(s observation) time.Time {
	if s.report == 0 || c.noSpaceUntil.Before(s.time) {
		return s.time
	}
	return c.noSpaceUntil
}

// mayServe reports whether an edge without a report may accept requests, as its lease may have ended early.
func (c *Cluster) mayServe(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.expired, func(p expired) bool { return p.Name == name && time.Now().Before(p.serves) })
}

// Name returns the name of this edge.
func (c *Cluster) Name() string { return c.Edge.Name }

// Leader reports whether this edge is the leader, which does the work that one edge does for all. For a
// moment, two edges may both be leaders. Leader may be called before Join.
func (c *Cluster) Leader() bool { return c.InContact() && c.LeaderName() == c.Edge.Name }

// LeaderName returns the name of the leader, "" if none is known. The leader is the edge that has started
// first of those with contact.
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

// Draining reports whether clients and connectors should use other edges.
func (c *Cluster) Draining() bool {
	e, _ := c.store.FindEdge(c.Edge.Name)
	return e.Draining
}

// InContact implements store.Cluster.
func (c *Cluster) InContact() bool {
	return c.contact.serving() && c.contact.age() < lostAfter(c.Edge.OnStoreLoss)
}

// Contact returns the contact of an edge to the store, as far as this edge knows.
func (c *Cluster) Contact(name string) store.Contact {
	l := c.Edge.OnStoreLoss
	last, longest, serving := time.Now().Add(-c.contact.age()), l, c.contact.serving()
	if name != c.Edge.Name {
		if !c.InContact() {
			return store.Contact{Unknown: true}
		}
		e, _ := c.store.FindEdge(name)
		last, l, longest, serving = c.reportedAt(e), e.OnStoreLoss, slow(e.OnStoreLoss), e.Report != nil
	}
	known := store.Contact{Last: last, Until: last}
	if serving {
		known.Until = last.Add(longest)
	}
	if why := c.problem.Load(); name == c.Edge.Name && why != nil && *why != nil {
		known.Problem = (*why).Error()
	}
	if serving && time.Since(last) < lostAfter(l) {
		known.Last = time.Time{}
	}
	return known
}

// Remove removes an edge that accepts no requests. stopped means that its program has certainly
// stopped: Remove then removes its report, too. A program that runs nevertheless accepts requests until
// it notices that, and then joins again.
func (c *Cluster) Remove(ctx context.Context, name string, stopped bool) error {
	if err := c.store.CatchUp(ctx); err != nil {
		return err
	}
	e, _ := c.store.FindEdge(name) // the store refuses an edge that does not exist
	e.Name = name
	reported := c.reportedAt(e)
	switch {
	case e.Is(c.Edge):
		return store.Errorf(store.ErrInUse,
			"the edge %s is running: it is this gateway. Stop it, and it leaves the cluster", name)
	case e.Report == nil && !c.mayServe(name), stopped:
		return c.store.RemoveLostEdge(ctx, e)
	case time.Since(reported) < lostAfter(e.OnStoreLoss):
		return store.Errorf(store.ErrInUse, "the edge %s is running: "+
			"stop its program, and it leaves the cluster by itself. If it was killed, it can be removed after %s, "+
			"or at once with `caddy gateway edge remove %s --stopped`",
			name, shown(reported.Add(e.LeaseTime())), name)
	}
	return store.Errorf(store.ErrInUse, "the edge %s has lost the store. It accepts nothing after %s, "+
		"and can be removed after %s. "+
		"If its program has certainly stopped, remove it at once with `caddy gateway edge remove %s --stopped`",
		name, shown(reported.Add(slow(e.OnStoreLoss))), shown(reported.Add(e.LeaseTime())), name)
}

// shown formats a time for users.
func shown(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// forget removes edges that have been lost for forgetTime while this edge is the leader.
func (c *Cluster) forget(ctx context.Context) {
	for wait.For(ctx, forgetPause) == nil {
		c.forgetLost(ctx)
	}
}

// forgetLost is one search of forget.
func (c *Cluster) forgetLost(ctx context.Context) {
	defer panics.Recover(c.Logger, "removing lost edges")
	for _, e := range c.store.Edges() {
		since := c.reportedAt(e)
		if e.Report != nil || time.Since(since) < forgetTime || !c.Leader() {
			continue
		}
		if err := c.store.RemoveLostEdge(ctx, e); err != nil {
			c.Logger.Warn("failed to remove a lost edge", "edge", e.Name, "error", err)
			continue
		}
		c.Logger.Info("removed an edge that was lost for a long time", "edge", e.Name, "since", since)
	}
}
