package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
)

const (
	renewTime   = 2 * time.Second         // between two renewals of the lease
	catchUpTime = 4 * time.Second         // of an attempt to catch up
	attemptTime = 1500 * time.Millisecond // of other attempts to reach the store
	retryTime   = 150 * time.Millisecond  // before another attempt
	askTime     = 500 * time.Millisecond  // between two questions to the peers
	confirmTime = 5 * time.Second         // that a write waits for the edges
	enterTime   = 8 * time.Second         // of an attempt to enter
	forgetTime  = time.Hour               // until the leader removes the record of a lost edge
	// MaxStoreLoss is the maximum of OnStoreLoss.
	MaxStoreLoss = forgetTime / 2
)

// Options are the parameters of New.
type Options struct {
	Edge store.Edge // without StartedAt and Electorate
	// Ask asks a peer whether it has contact to the store. nil: peers cannot be asked.
	Ask func(ctx context.Context, peer store.Edge) (Answer, error)
	// Waited is called after each Confirm, with its time and whether all edges have confirmed.
	// It may be nil.
	Waited func(took time.Duration, confirmed bool)
	Logger *slog.Logger
}

// Cluster is an edge's part in the cluster. Its methods are safe for concurrent use. It
// implements store.Cluster.
type Cluster struct {
	Options
	contact *contact
	store   *store.Store

	mu        sync.Mutex
	reached   int64            // the newest revision to report
	confirmed int64            // that of the latest change that edges confirm
	changed   chan struct{}    // closed and replaced when an edge or a report has changed
	lost      map[string]*lost // edges without a report

	served bool // accepted requests when askPeers last looked

	report     chan struct{} // reached has changed
	electors   chan struct{} // the edges have changed
	unwatch    func()
	end        context.CancelFunc
	goroutines sync.WaitGroup
}

// lost is an edge without a report.
type lost struct {
	revision int64     // of its record
	since    time.Time // when that was noticed
	silent   bool      // proven to refuse requests
}

// New returns the Cluster for the options of a store. Join must be called with that store.
func New(o Options) *Cluster {
	o.Edge.StartedAt = time.Now().UTC()
	return &Cluster{
		Options: o, contact: newContact(o.Edge.OnStoreLoss),
		changed: make(chan struct{}), lost: map[string]*lost{},
		report: make(chan struct{}, 1), electors: make(chan struct{}, 1),
	}
}

// Join adds this edge to the cluster. Until it returns, the edge must not accept requests. If
// the store cannot be reached, that goes on in the background.
func (c *Cluster) Join(ctx context.Context, s *store.Store) error {
	c.store = s
	c.unwatch = s.Subscribe(func(change store.Change) {
		if change.Kind == store.KindEdge {
			c.onChange()
		}
	})
	lease, err := c.enter(ctx)
	if err != nil && !errors.Is(err, store.ErrUnavailable) {
		c.unwatch()
		return err
	}
	c.served = err == nil
	if err != nil {
		c.Logger.Error("failed to join the cluster; refusing requests until that succeeds, or while another gateway serves without the store", "error", err)
	}
	running, end := context.WithCancel(context.Background())
	c.end = end
	c.goroutines.Go(func() { c.stay(running, lease) })
	c.goroutines.Go(func() { c.askPeers(running) })
	c.goroutines.Go(func() { c.forget(running) })
	c.goroutines.Go(func() { c.cutRequests(running) })
	c.onChange()
	return nil
}

// Leave removes this edge from the cluster. It must have ended all requests, except if the
// process ends now. It takes 3 s if this edge has just been without contact.
func (c *Cluster) Leave(ctx context.Context) error {
	c.contact.claim(time.Hour)
	c.contact.refuse()
	c.unwatch()
	c.end()
	c.goroutines.Wait()
	c.contact.refuse() // what a peer has lent meanwhile
	if err := c.quiet(ctx); err != nil {
		return err
	}
	return c.store.RemoveEdge(ctx, c.Edge)
}

// Serving implements store.Cluster.
func (c *Cluster) Serving() error {
	if c.contact.serving() {
		return nil
	}
	return store.Errorf(store.ErrUnavailable, "this gateway has lost contact to its store and may have missed revoked keys: try again, or use another gateway")
}

// Stale returns how long ago the edge had contact to the store.
func (c *Cluster) Stale() time.Duration { return c.contact.stale() }

// onChange notes a change of an edge or a report.
func (c *Cluster) onChange() {
	defer signal(c.electors)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.store.Edges() {
		switch known := c.lost[e.Name]; {
		case e.Report != nil:
			delete(c.lost, e.Name)
		case known == nil || known.revision != e.Revision:
			c.lost[e.Name] = &lost{revision: e.Revision, since: time.Now()}
		}
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// Reached implements store.Cluster.
func (c *Cluster) Reached(revision int64) {
	c.mu.Lock()
	c.reached, c.confirmed = max(c.reached, revision), max(c.confirmed, revision)
	c.mu.Unlock()
	signal(c.report)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// enter writes the record of this edge and its first report.
func (c *Cluster) enter(ctx context.Context) (store.Lease, error) {
	c.contact.setElectorate(nil)
	if _, err := c.store.CatchUp(ctx); err != nil {
		return nil, err
	}
	c.contact.claim(enterTime)
	ctx, cancel := context.WithTimeout(ctx, enterTime)
	defer cancel()
	// Others may have counted on the record, and on the report that it replaces.
	if err := c.quiet(ctx); err != nil {
		return nil, err
	}
	if err := c.vacant(); err != nil {
		return nil, err
	}
	edge, err := c.store.AddEdge(ctx, c.Edge)
	if err != nil {
		return nil, err
	}
	lease, err := c.store.Lease(ctx, leaseTime)
	if err != nil {
		return nil, err
	}
	// A write before the report does not wait for this edge, which catches up before it serves.
	if err := c.saveReport(ctx, lease); err != nil {
		return nil, err
	}
	if err := c.renew(ctx, lease); err != nil {
		return nil, err
	}
	c.setElectorate(edge)
	signal(c.report)
	return lease, nil
}

// quiet waits until nothing counts that this edge has told its peers without contact.
func (c *Cluster) quiet(ctx context.Context) error {
	_, wait := c.contact.mayReport()
	pause(ctx, wait)
	if _, wait = c.contact.mayReport(); wait > 0 && ctx.Err() == nil {
		return store.Errorf(store.ErrUnavailable, "the store answers too slowly to join the cluster")
	}
	return ctx.Err()
}

// vacant fails with ErrUnavailable if the name is that of another edge which may accept requests.
func (c *Cluster) vacant() error {
	e, ok := c.store.FindEdge(c.Edge.Name)
	if !ok || e.Instance == c.Edge.Instance || e.Report != nil { // AddEdge refuses the last
		return nil
	}
	if until, silent := c.silentAt(e); !silent {
		return store.Errorf(store.ErrUnavailable, "another gateway called %s has lost the store, but may accept requests until %s: "+
			"this one takes its place then; give it another name if both shall run", e.Name, until.UTC().Format(time.RFC3339))
	}
	return nil
}

// renew renews the lease after it has caught up: that is contact to the store.
func (c *Cluster) renew(ctx context.Context, lease store.Lease) error {
	sent := c.contact.now()
	caughtUp, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	if _, err := c.store.CatchUp(caughtUp); err != nil {
		return err
	}
	if e, _ := c.store.FindEdge(c.Edge.Name); e.Report == nil || e.Instance != c.Edge.Instance || !e.StartedAt.Equal(c.Edge.StartedAt) {
		return store.Errorf(store.ErrNotFound, "the record or the report of this gateway is no longer in the store")
	}
	attempt, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	if err := lease.KeepAlive(attempt); err != nil {
		return err
	}
	c.contact.answered(sent)
	return nil
}

// stay keeps this edge in the cluster until the context ends. It has no lease yet if it could
// not enter.
func (c *Cluster) stay(ctx context.Context, lease store.Lease) {
	failure := ""
	for ctx.Err() == nil {
		if lease != nil {
			err := panics.Do(c.Logger, "holding the place in the cluster", func() error { return c.hold(ctx, lease) })
			if ctx.Err() != nil {
				break
			}
			c.contact.refuse()
			c.Logger.Error("lost the place in the cluster; refusing requests until this gateway has joined again", "error", err)
		}
		lease = nil
		err := panics.Do(c.Logger, "joining the cluster", func() (err error) {
			lease, err = c.enter(ctx)
			return err
		})
		if err != nil {
			if err.Error() != failure {
				c.Logger.Warn("failed to join the cluster; trying again", "error", err)
			}
			failure = err.Error()
			pause(ctx, renewTime)
			continue
		}
		c.Logger.Info("joined the cluster")
		failure = ""
	}
}

// hold renews the lease and reports until the lease has ended.
func (c *Cluster) hold(ctx context.Context, lease store.Lease) error {
	ctx, stop := context.WithCancelCause(ctx)
	var reporting sync.WaitGroup
	part := func(doing string, f func() error) { reporting.Go(func() { stop(panics.Do(c.Logger, doing, f)) }) }
	part("reporting to the cluster", func() error { return c.reports(ctx, lease) })
	part("saving the electorate", func() error { return c.electorates(ctx) })
	defer reporting.Wait()
	defer stop(nil)
	failing := false
	for ctx.Err() == nil {
		wait := renewTime
		if failing { // once a peer has contact again, its answers no longer help this edge
			wait = retryTime
		}
		pause(ctx, wait)
		err := c.renew(ctx, lease)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, store.ErrNotFound):
			return err
		case err != nil && !failing:
			c.Logger.Warn("failed to reach the store; trying again", "error", err)
		}
		failing = err != nil
	}
	return context.Cause(ctx)
}

// reports reports each revision that others may wait for, until the lease has ended.
func (c *Cluster) reports(ctx context.Context, lease store.Lease) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.report:
		}
		err := c.saveReport(ctx, lease)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return err
		case err != nil:
			pause(ctx, retryTime)
			signal(c.report)
		}
	}
}

func (c *Cluster) saveReport(ctx context.Context, lease store.Lease) error {
	c.mu.Lock()
	reached := c.reached
	c.mu.Unlock()
	period, wait := c.contact.mayReport()
	for wait > 0 && ctx.Err() == nil {
		pause(ctx, wait)
		period, wait = c.contact.mayReport()
	}
	attempt, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	return c.store.SaveReport(attempt, c.Edge.Name, store.Report{Applied: reached, Contact: period}, lease.ID())
}

// electorates keeps the electorate in the record of this edge up to date.
func (c *Cluster) electorates(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.electors:
		}
		instances := c.store.EdgeInstances()
		self, ok := c.store.FindEdge(c.Edge.Name)
		if ok && slices.Equal(self.Electorate, instances) {
			continue
		}
		c.contact.setElectorate(nil)
		pause(ctx, wordTime) // until it does not rely on the old one
		attempt, cancel := context.WithTimeout(ctx, catchUpTime)
		edge, err := c.store.ChangeEdge(attempt, c.Edge.Name, func(e *store.Edge) { e.Electorate = instances })
		cancel()
		if err != nil {
			pause(ctx, retryTime)
			signal(c.electors)
			continue
		}
		c.setElectorate(edge)
	}
}

func (c *Cluster) setElectorate(e store.Edge) {
	others := slices.DeleteFunc(slices.Clone(e.Electorate), func(instance string) bool { return instance == e.Instance })
	c.contact.setElectorate(others)
}

// OnStoreLoss returns how long this edge serves without the store at most.
func (c *Cluster) OnStoreLoss() time.Duration { return c.Edge.OnStoreLoss }

// pause waits for a time or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
