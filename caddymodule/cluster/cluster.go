package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	contactTimeout = 4 * time.Second        // of an attempt to contact the store
	enterTimeout   = 8 * time.Second        // of an attempt to enter
	retryPause     = 150 * time.Millisecond // before the second attempt to contact the store
	rejoinPause    = time.Second            // before another attempt to enter
)

// Options are the parameters of New.
type Options struct {
	Edge store.Edge // without StartedAt; its OnStoreLoss is at least MinStoreLoss
	// Waited is called after each Confirm, with its duration and whether all edges have confirmed. It may be nil.
	Waited func(took time.Duration, confirmed bool)
	// Clocks reads the clocks; nil: the clocks of the machine.
	Clocks func() Reading
	Logger *slog.Logger
}

// Cluster is an edge's part in the cluster. Its methods are safe for concurrent use. It implements store.Cluster.
type Cluster struct {
	Options
	contact *contact
	store   *store.Store
	problem atomic.Pointer[error] // of the last attempt to reach and change the store; nil, or of nil: none

	// Used by Join and then by stay alone.
	reportRevision int64     // of the last report with the lease
	nameTakenSince time.Time // when another process with the name was first seen; zero: the name is free

	changed      wait.Change // of an edge or a report
	mu           sync.Mutex
	reached      int64                  // the newest revision to report
	observed     map[string]observation // by the names of edges
	expired      []expired              // processes that may accept requests although they have no report
	noSpaceUntil time.Time              // until then, edges may have had contact without a report: the store had no space

	wake       chan struct{} // there is a revision to report, or contact was lost
	unwatch    func()
	end        context.CancelFunc
	goroutines sync.WaitGroup
}

// New returns the Cluster for the options of a store. Join must be called with that store.
func New(o Options) *Cluster {
	o.Edge.StartedAt = time.Now().UTC()
	o.Edge.OnStoreLoss = max(o.Edge.OnStoreLoss, MinStoreLoss)
	if o.Clocks == nil {
		o.Clocks = readClocks
	}
	return &Cluster{
		Options: o, contact: newContact(o.Clocks, o.Edge.OnStoreLoss),
		observed: map[string]observation{}, wake: make(chan struct{}, 1),
	}
}

// Join adds this edge to the cluster. The edge must not accept requests before it returns. If
// the store cannot be reached, or the name is not free, Join continues in the background.
func (c *Cluster) Join(ctx context.Context, s *store.Store) error {
	c.store = s
	c.unwatch = s.Subscribe(func(change store.Change) {
		if change.Kind == store.KindEdge || change.Kind == store.KindReport {
			c.observe(change.ID)
		}
	})
	for _, e := range s.Edges() {
		c.observe(e.Name)
	}
	lease, err := c.enter(ctx)
	if err == nil {
		err = c.contactStore(ctx, lease)
	}
	if err != nil && !errors.Is(err, store.ErrUnavailable) {
		c.unwatch()
		return err
	}
	running, end := context.WithCancel(context.Background())
	c.end = end
	c.goroutines.Go(func() { c.stay(running, lease) })
	c.goroutines.Go(func() { c.watchClocks(running) })
	c.goroutines.Go(func() { c.forget(running) })
	return nil
}

// Leave removes this edge from the cluster. All requests must have ended, unless the process ends now.
func (c *Cluster) Leave(ctx context.Context) error {
	c.unwatch()
	c.end()
	c.contact.refuse()
	c.goroutines.Wait()
	c.contact.refuse() // again: there may have been a contact meanwhile
	return c.store.RemoveEdge(ctx, c.Edge)
}

// Serving implements store.Cluster.
func (c *Cluster) Serving() error {
	if c.contact.serving() {
		return nil
	}
	return store.Errorf(store.ErrUnavailable, "this gateway has lost contact with its store and may have missed "+
		"revoked keys: try again, or use another gateway")
}

// MayRun implements store.Cluster.
func (c *Cluster) MayRun() bool { return c.contact.mayRun() }

// Reached implements store.Cluster.
func (c *Cluster) Reached(revision int64) {
	c.mu.Lock()
	c.reached = max(c.reached, revision)
	c.mu.Unlock()
	wait.Wake(c.wake, struct{}{})
}

// enter writes the record of this edge, and returns a lease for its reports.
func (c *Cluster) enter(ctx context.Context) (store.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, enterTimeout)
	defer cancel()
	if err := c.store.CatchUp(ctx); err != nil {
		return nil, err
	}
	if err := c.checkName(); err != nil {
		return nil, err
	}
	c.reportRevision = 0
	if err := c.store.AddEdge(ctx, c.Edge); err != nil {
		return nil, err
	}
	return c.store.Lease(ctx, c.Edge.LeaseTime())
}

// checkName fails with ErrUnavailable while another process has the name.
func (c *Cluster) checkName() error {
	e, ok := c.store.FindEdge(c.Edge.Name)
	if !ok || e.FreeFor(c.Edge) {
		c.nameTakenSince = time.Time{}
		return nil
	}
	if c.nameTakenSince.IsZero() {
		c.nameTakenSince = time.Now()
	}
	who := "another gateway called " + e.Name
	if e.Instance == c.Edge.Instance {
		who = "the last process of " + e.Name + ", or one with a copy of its data directory,"
	}
	const names = "give each its own data directory and its own name with `edge { name … }`"
	last := c.reportedAt(e)
	if last.After(c.nameTakenSince) {
		return store.Errorf(store.ErrUnavailable, "%s runs: "+names, who)
	}
	return store.Errorf(store.ErrUnavailable, "%s may accept requests: if it does not run, "+
		"this one takes its place by %s, or at once after "+
		"`caddy gateway edge remove %s --stopped`; if both shall run, "+names,
		who, shown(last.Add(e.LeaseTime())), e.Name)
}

// stay keeps this edge in the cluster until the context ends. lease is nil if the edge could not enter yet.
func (c *Cluster) stay(ctx context.Context, lease store.Lease) {
	for last := ""; ctx.Err() == nil; lease = nil {
		err := panics.Do(c.Logger, "staying in the cluster", func() (err error) {
			if lease == nil {
				if lease, err = c.enter(ctx); err != nil {
					return err
				}
				last = ""
				c.Logger.Info("joined the cluster")
			}
			return c.keepContact(ctx, lease)
		})
		c.contact.refuse()
		c.problem.Store(&err)
		if ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			c.Logger.Error("not in the cluster; refusing requests until this gateway has joined", "error", err)
		}
		if !errors.Is(err, store.ErrNotFound) { // a lost record is written again at once
			_ = wait.For(ctx, rejoinPause)
		}
	}
}

// keepContact contacts the store at intervals until the record or the lease is lost. In between, it
// reports new revisions at once, as writers wait for them.
func (c *Cluster) keepContact(ctx context.Context, lease store.Lease) error {
	failures, due := 0, time.Now()
	if c.contact.serving() {
		due = due.Add(interval(c.Edge.OnStoreLoss))
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.wake:
		case <-time.After(time.Until(due)):
		}
		var err error
		if !time.Now().Before(due) || !c.contact.serving() {
			err = c.contactStore(ctx, lease)
			due = time.Now().Add(interval(c.Edge.OnStoreLoss))
		} else {
			err = c.report(ctx, lease)
		}
		switch {
		case errors.Is(err, store.ErrNotFound), ctx.Err() != nil:
			return err
		case err != nil:
			c.problem.Store(&err)
			if failures++; failures == 1 {
				until := c.Contact(c.Edge.Name).Until
				c.Logger.Warn("failed to reach the store; trying again", "error", err, "serving_until", until)
			}
			due = time.Now().Add(min(retryPause<<min(failures-1, 3), time.Second))
		case failures > 0:
			c.Logger.Info("reached the store again")
			failures = 0
		}
	}
}

// contactStore makes a contact with the store, after which this edge serves. See the package comment.
func (c *Cluster) contactStore(ctx context.Context, lease store.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	// An edge whose view stands still must neither report nor keep its lease.
	if err := c.store.Reach(ctx, c.reportRevision); err != nil {
		return err
	}
	sending := c.contact.send()
	err := c.report(ctx, lease)
	c.problem.Store(new(err))
	switch {
	case err == nil:
		err = c.store.Reach(ctx, c.reportRevision)
	case errors.Is(err, store.ErrNoSpace) && c.reportRevision > 0: // there are no changes to report either
		c.mu.Lock()
		c.noSpaceUntil = time.Now().Add(interval(MaxStoreLoss)) // by then, all edges notice that there is space again
		c.mu.Unlock()
		err = c.store.CatchUp(ctx)
	}
	if err == nil {
		err = lease.KeepAlive(ctx)
	}
	if err == nil {
		c.contact.confirm(sending)
	}
	return err
}

// report puts the report of this edge.
func (c *Cluster) report(ctx context.Context, lease store.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	c.mu.Lock()
	r := store.Report{Applied: c.reached}
	c.mu.Unlock()
	revision, err := c.store.SaveReport(ctx, c.Edge, r, lease.ID())
	if err == nil {
		c.reportRevision = revision
	}
	return err
}

// watchClocks reads the clocks repeatedly, and ends running requests at L after the last contact.
func (c *Cluster) watchClocks(ctx context.Context) {
	for next := tickTime; wait.For(ctx, next) == nil; {
		next = c.tick()
	}
}

func (c *Cluster) tick() (next time.Duration) {
	next = tickTime // also after a panic
	defer panics.Recover(c.Logger, "reading the clocks")
	next, gap, cut := c.contact.tick()
	if cut {
		c.store.CutRequests()
		c.contact.cut()
	}
	if gap || cut {
		wait.Wake(c.wake, struct{}{})
	}
	if gap {
		c.Logger.Warn("this program or its machine has stood still; refusing requests until the next contact")
	}
	if cut {
		last := c.Contact(c.Edge.Name).Last
		c.Logger.Error("refusing requests, and ending those that run: no contact for on_store_loss", "last", last)
	}
	return next
}
