package cluster

import (
	"sync"
	"time"
)

// The times of an edge. L is its OnStoreLoss.
const (
	// MinStoreLoss and MaxStoreLoss bound L.
	MinStoreLoss = 10 * time.Second
	MaxStoreLoss = forgetTime / 2

	tickTime = time.Second // between two readings of the clocks
)

// interval returns the time between two contacts of an edge.
func interval(l time.Duration) time.Duration { return min(max(l/20, time.Second), 5*time.Second) }

// slow returns the time in which l passes by the slowest clock.
func slow(l time.Duration) time.Duration { return l * 9 / 8 }

// lostAfter returns how old the last contact of an edge is when the edge counts as lost.
func lostAfter(l time.Duration) time.Duration { return 3*interval(l) + time.Second }

// contact decides whether an edge accepts requests. See the package comment.
type contact struct {
	clocks func() Reading
	limit  time.Duration // L

	mu          sync.Mutex
	ticked      Reading // at the last tick
	lastSent    Reading // when the last confirmed contact was sent; before the first one, at the start
	generation  int     // grows when contacts that were sent before no longer count
	confirmed   bool    // the last confirmed contact is of this generation
	requestsRun bool    // requests that the last confirmed contact has allowed may still run
	cutting     bool    // they are being cut, since the last tick
}

func newContact(clocks func() Reading, limit time.Duration) *contact {
	now := clocks()
	return &contact{clocks: clocks, limit: limit, ticked: now, lastSent: now}
}

// sending is a contact that is not confirmed yet.
type sending struct {
	clocks     Reading // before it is sent
	generation int
}

// send returns a contact that is about to be sent.
func (c *contact) send() sending {
	now := c.clocks()
	c.mu.Lock()
	defer c.mu.Unlock()
	return sending{now, c.generation}
}

// confirm lets the edge serve, unless contacts of its generation no longer count, or requests are being cut.
func (c *contact) confirm(s sending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.generation == c.generation && !c.cutting {
		c.lastSent, c.confirmed, c.requestsRun = s.clocks, true, true
	}
}

// refuse makes the edge refuse requests until it has confirmed a contact that is sent later. Running requests continue.
func (c *contact) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endGeneration()
}

func (c *contact) endGeneration() { c.confirmed, c.generation = false, c.generation+1 }

// serving reports whether the edge may accept a request now.
func (c *contact) serving() bool {
	now := c.clocks()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.confirmed && now.since(c.lastSent) < c.limit && !now.gap(c.ticked)
}

// mayRun reports whether running requests may go on: they are not being cut, and tick would not cut them now. A
// process that was suspended may read the answers that have waited for it before its next tick.
func (c *contact) mayRun() bool {
	now := c.clocks()
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.cutting && !c.mustEnd(now)
}

// mustEnd reports whether running requests must end.
func (c *contact) mustEnd(now Reading) bool {
	return c.requestsRun && max(now.since(c.ticked), now.since(c.lastSent)) >= c.limit
}

// tick reads the clocks. It returns the time until the next tick, whether the edge has just begun
// to refuse requests because of a gap, and whether all running requests have to be cut. The caller then calls cut.
func (c *contact) tick() (next time.Duration, gap, cut bool) {
	now := c.clocks()
	c.mu.Lock()
	defer c.mu.Unlock()
	gap = now.gap(c.ticked)
	sentBefore := c.lastSent.Monotonic <= c.ticked.Monotonic || c.ticked.since(c.lastSent) <= maxGap
	if gap && sentBefore { // a wall clock that was set back after the contact continues from there
		c.lastSent.Wall += min(0, now.Wall-c.ticked.Wall)
	}
	cut = c.cutting || c.mustEnd(now)
	c.ticked = now
	if gap || cut {
		c.endGeneration()
	}
	c.cutting = cut
	if c.requestsRun && !cut {
		return min(tickTime, c.limit-now.since(c.lastSent)), gap, cut
	}
	return tickTime, gap, cut
}

// cut notes that the running requests are cut.
func (c *contact) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requestsRun, c.cutting = false, false
}

// age returns the time since the last confirmed contact, or since the start.
func (c *contact) age() time.Duration {
	now := c.clocks()
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.since(c.lastSent)
}
