package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	contactTime = 4 * time.Second        // of an attempt to have contact
	enterTime   = 8 * time.Second        // of an attempt to enter
	againTime   = 150 * time.Millisecond // before another attempt to have contact, the first time
	rejoinTime  = time.Second            // before another attempt to enter
)

// Options are the parameters of New.
type Options struct {
	Edge store.Edge // without StartedAt; its OnStoreLoss is at least MinStoreLoss
	// Waited is called after each Confirm, with its time and whether all edges have confirmed.
	// It may be nil.
	Waited func(took time.Duration, confirmed bool)
	// Clocks reads the clocks. nil: those of the machine.
	Clocks func() Reading
	Logger *slog.Logger
}

// Cluster is an edge's part in the cluster. Its methods are safe for concurrent use. It
// implements store.Cluster.
type Cluster struct {
	Options
	contact *contact
	store   *store.Store
	put     int64     // revision of the last report with the lease; of the goroutine that has contact
	taken   time.Time // since when another process has the name; of the goroutine that enters

	changed wait.Change // an edge or a report
	mu      sync.Mutex
	reached int64           // the newest revision to report
	seen    map[string]seen // by the names of edges
	ended   []ended         // that may accept requests after all
	full    time.Time       // until when edges may have had contact without a report, as the store had no space

	wake       chan struct{} // there is something to report, or no contact
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
		seen: map[string]seen{}, wake: make(chan struct{}, 1),
	}
}

// Join adds this edge to the cluster. Until it returns, the edge must not accept requests. If
// the store cannot be reached, or the name is not free, that goes on in the background.
func (c *Cluster) Join(ctx context.Context, s *store.Store) error {
	c.store = s
	c.unwatch = s.Subscribe(func(change store.Change) {
		if change.Kind == store.KindEdge || change.Kind == store.KindReport {
			c.note(change.ID)
		}
	})
	for _, e := range s.Edges() {
		c.note(e.Name)
	}
	lease, err := c.enter(ctx)
	if err == nil {
		err = c.meet(ctx, lease)
	}
	if err != nil && !errors.Is(err, store.ErrUnavailable) {
		c.unwatch()
		return err
	}
	if err != nil {
		c.Logger.Error("failed to join the cluster; refusing requests until that succeeds", "error", err)
	}
	running, end := context.WithCancel(context.Background())
	c.end = end
	c.goroutines.Go(func() { c.stay(running, lease) })
	c.goroutines.Go(func() { c.watchClocks(running) })
	c.goroutines.Go(func() { c.forget(running) })
	return nil
}

// Leave removes this edge from the cluster. It must have ended all requests, except if the
// process ends now.
func (c *Cluster) Leave(ctx context.Context) error {
	c.unwatch()
	c.end()
	c.contact.refuse()
	c.goroutines.Wait()
	c.contact.refuse() // a contact of meanwhile
	return c.store.RemoveEdge(ctx, c.Edge)
}

// Serving implements store.Cluster.
func (c *Cluster) Serving() error {
	if c.contact.serving() {
		return nil
	}
	return store.Errorf(store.ErrUnavailable, "this gateway has lost contact to its store and may have missed "+
		"revoked keys: try again, or use another gateway")
}

// Reached implements store.Cluster.
func (c *Cluster) Reached(revision int64) {
	c.mu.Lock()
	c.reached = max(c.reached, revision)
	c.mu.Unlock()
	wait.Wake(c.wake, struct{}{})
}

// enter takes the place of this edge, and returns the lease for its reports.
func (c *Cluster) enter(ctx context.Context) (store.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, enterTime)
	defer cancel()
	if err := c.store.CatchUp(ctx); err != nil {
		return nil, err
	}
	if err := c.vacant(); err != nil {
		return nil, err
	}
	c.put = 0
	if err := c.store.AddEdge(ctx, c.Edge); err != nil {
		return nil, err
	}
	return c.store.Lease(ctx, c.Edge.LeaseTime())
}

// vacant fails with ErrUnavailable while another process has the name.
func (c *Cluster) vacant() error {
	e, ok := c.store.FindEdge(c.Edge.Name)
	if !ok || e.FreeFor(c.Edge) {
		c.taken = time.Time{}
		return nil
	}
	if c.taken.IsZero() {
		c.taken = time.Now()
	}
	who := "another gateway called " + e.Name
	if e.Instance == c.Edge.Instance {
		who = "the last process of " + e.Name + ", or one with a copy of its data directory,"
	}
	const names = "give each its own data directory and its own name with `edge { name … }`"
	last := c.reportedAt(e)
	if last.After(c.taken) {
		return store.Errorf(store.ErrUnavailable, "%s runs: "+names, who)
	}
	return store.Errorf(store.ErrUnavailable, "%s may accept requests: if it does not run, "+
		"this one takes its place by %s, or at once after "+
		"`caddy gateway edge remove %s --stopped`; if both shall run, "+names,
		who, shown(last.Add(e.LeaseTime())), e.Name)
}

// stay keeps this edge in the cluster until the context ends. It has no lease yet if it could
// not enter.
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
			return c.hold(ctx, lease)
		})
		c.contact.refuse()
		if ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			c.Logger.Error("no place in the cluster; refusing requests until this gateway has joined", "error", err)
		}
		if !errors.Is(err, store.ErrNotFound) { // it has not lost its place just now
			_ = wait.For(ctx, rejoinTime)
		}
	}
}

// hold has contact again and again, and reports at once what others may wait for, until the place is
// lost.
func (c *Cluster) hold(ctx context.Context, lease store.Lease) error {
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
		if whole := !time.Now().Before(due) || !c.contact.serving(); whole {
			err = c.meet(ctx, lease)
			due = time.Now().Add(interval(c.Edge.OnStoreLoss))
		} else {
			err = c.report(ctx, lease)
		}
		switch {
		case errors.Is(err, store.ErrNotFound), ctx.Err() != nil:
			return err
		case err != nil:
			if failures++; failures == 1 {
				until := c.Contact(c.Edge.Name).Until
				c.Logger.Warn("failed to reach the store; trying again", "error", err, "serving_until", until)
			}
			due = time.Now().Add(min(againTime<<min(failures-1, 3), time.Second))
		case failures > 0:
			c.Logger.Info("reached the store again")
			failures = 0
		}
	}
}

// meet has contact to the store, after which this edge serves. See the package comment.
func (c *Cluster) meet(ctx context.Context, lease store.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, contactTime)
	defer cancel()
	// An edge whose view stands still must not look alive, nor keep its lease.
	if err := c.store.Reach(ctx, c.put); err != nil {
		return err
	}
	sending := c.contact.send()
	err := c.report(ctx, lease)
	switch {
	case err == nil:
		err = c.store.Reach(ctx, c.put)
	case errors.Is(err, store.ErrNoSpace) && c.put > 0: // nothing can be changed, so there is nothing to report
		c.mu.Lock()
		c.full = time.Now().Add(interval(MaxStoreLoss)) // others notice that there is space by then
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
	ctx, cancel := context.WithTimeout(ctx, contactTime)
	defer cancel()
	c.mu.Lock()
	r := store.Report{Applied: c.reached}
	c.mu.Unlock()
	revision, err := c.store.SaveReport(ctx, c.Edge, r, lease.ID())
	if err == nil {
		c.put = revision
	}
	return err
}

// watchClocks looks at the clocks again and again, and ends the requests that run at L after the last contact.
func (c *Cluster) watchClocks(ctx context.Context) {
	for next := tickTime; wait.For(ctx, next) == nil; {
		next = c.tick()
	}
}

func (c *Cluster) tick() (next time.Duration) {
	next = tickTime // also after a panic
	defer panics.Recover(c.Logger, "looking at the clocks")
	next, gap, cut := c.contact.tick()
	if cut {
		c.store.CutRequests()
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
