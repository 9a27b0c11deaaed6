package cluster

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
)

// Confirm implements store.Cluster. It gives up after 5 s.
func (c *Cluster) Confirm(ctx context.Context, revision int64) error {
	began := time.Now()
	err := c.confirm(ctx, revision)
	if c.Waited != nil {
		c.Waited(time.Since(began), err == nil)
	}
	return err
}

func (c *Cluster) confirm(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	var waiting []string // for edges that were there when the change was made
	for _, e := range c.store.Edges() {
		waiting = append(waiting, e.Name) // this one, too: it may have lent time
	}
	proving := false
	for {
		changed := c.change()
		pending, lost := c.pending(waiting, revision)
		if len(pending) == 0 {
			return nil
		}
		if lost && !proving {
			proving = true
			go func() {
				defer panics.Recover(c.Logger, "proving that an edge is silent")
				c.prove(ctx)
			}()
		}
		end := pending[0].Until
		for _, p := range pending {
			if p.Until.Before(end) {
				end = p.Until
			}
		}
		select {
		case <-changed:
		case <-time.After(time.Until(end)):
		case <-ctx.Done():
			return &store.Unconfirmed{Pending: pending}
		}
	}
}

// change returns a channel that is closed when an edge or a report changes.
func (c *Cluster) change() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// pending returns those of the edges that may act on the state before revision, and whether
// some of them have no report.
func (c *Cluster) pending(edges []string, revision int64) (pending []store.PendingEdge, lost bool) {
	for _, name := range edges {
		e, ok := c.store.FindEdge(name)
		switch {
		case !ok: // it has left
		case e.Report == nil:
			if until, silent := c.silentAt(e); !silent {
				lost = true
				pending = append(pending, store.PendingEdge{Edge: name, Until: until})
			}
		case e.Report.Applied < revision:
			// If it cannot report, its lease ends.
			pending = append(pending, store.PendingEdge{Edge: name, Until: time.Now().Add(leaseTime)})
		}
	}
	return pending, lost
}

// silentAt returns when an edge without a report refuses requests at the latest, and whether it
// does so now.
func (c *Cluster) silentAt(e store.EdgeState) (until time.Time, silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lost[e.Name]
	if l == nil || l.revision != e.Revision { // onChange has not been called yet
		l = &lost{revision: e.Revision, since: time.Now()}
		c.lost[e.Name] = l
	}
	until = l.since.Add(e.OnStoreLoss)
	return until, l.silent || !time.Now().Before(until)
}

// prove looks for proofs that lost edges are silent, until the context ends. See the package
// comment.
func (c *Cluster) prove(ctx context.Context) {
	for ctx.Err() == nil {
		changed := c.change()
		reports := map[string]store.Report{}
		var suspects []store.EdgeState
		edges := c.store.Edges()
		for _, e := range edges {
			if e.Report != nil {
				reports[e.Instance] = *e.Report
			}
		}
		for _, e := range edges {
			if _, silent := c.silentAt(e); e.Report == nil && !silent && provable(e, reports) {
				suspects = append(suspects, e)
			}
		}
		if len(suspects) > 0 {
			revision, err := c.store.Barrier(ctx)
			if err == nil && c.proven(ctx, suspects, reports, revision) {
				continue
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// proven waits until the witnesses prove that one of the suspects is silent, or can no longer.
func (c *Cluster) proven(ctx context.Context, suspects []store.EdgeState, before map[string]store.Report, revision int64) bool {
	for ctx.Err() == nil {
		changed := c.change()
		able, witnesses := map[string]store.Report{}, map[string]store.Report{}
		for _, e := range c.store.Edges() {
			if was, ok := before[e.Instance]; !ok || e.Report == nil || e.Report.Contact != was.Contact {
				continue
			}
			able[e.Instance] = *e.Report
			if e.Report.Applied >= revision {
				witnesses[e.Instance] = *e.Report
			}
		}
		hope, found := false, false
		for _, e := range suspects {
			hope = hope || provable(e, able)
			found = provable(e, witnesses) && c.setSilent(e) || found
		}
		if found || !hope {
			return found
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

// provable reports whether at least half of the electorate of an edge have reports.
func provable(e store.EdgeState, reports map[string]store.Report) bool {
	n := 0
	for _, instance := range e.Electorate {
		if _, ok := reports[instance]; ok && instance != e.Instance {
			n++
		}
	}
	return len(e.Electorate) > 0 && 2*n >= len(e.Electorate)
}

// setSilent notes that an edge is silent while it has its record, and wakes those who wait for
// that.
func (c *Cluster) setSilent(e store.EdgeState) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lost[e.Name]
	if l == nil || l.revision != e.Revision {
		return false
	}
	l.silent = true
	close(c.changed)
	c.changed = make(chan struct{})
	return true
}
