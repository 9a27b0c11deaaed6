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

	tickTime = time.Second // between two looks at the clocks
)

// interval returns the time between two contacts of an edge with L.
func interval(l time.Duration) time.Duration { return min(max(l/20, time.Second), 5*time.Second) }

// fresh returns the time since the last contact of an edge with L after which it counts as lost.
func fresh(l time.Duration) time.Duration { return 3*interval(l) + time.Second }

// contact decides whether an edge accepts requests. See the package comment.
type contact struct {
	clocks func() Reading
	limit  time.Duration // L

	mu     sync.Mutex
	ticked Reading // the last look at the clocks
	sent   Reading // of the last confirmed contact; at first that of the start
	period int     // grows when what was sent before no longer counts
	holds  bool    // the last confirmed contact is of this period
	runs   bool    // requests of the last confirmed contact may still run
}

func newContact(clocks func() Reading, limit time.Duration) *contact {
	now := clocks()
	return &contact{clocks: clocks, limit: limit, ticked: now, sent: now}
}

// sending is a contact that is about to be sent.
type sending struct {
	at     Reading
	period int
}

// send returns a contact that is sent from now on.
func (c *contact) send() sending {
	now := c.clocks()
	c.mu.Lock()
	defer c.mu.Unlock()
	return sending{now, c.period}
}

// confirm makes the edge serve, unless the time from which the contact is has ended.
func (c *contact) confirm(s sending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.period == c.period {
		c.sent, c.holds, c.runs = s.at, true, true
	}
}

// refuse makes the edge refuse requests until a contact that is sent later. Those that run may go on.
func (c *contact) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}

func (c *contact) drop() { c.holds, c.period = false, c.period+1 }

// serving reports whether the edge may accept a request now.
func (c *contact) serving() bool {
	now := c.clocks()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holds && now.since(c.sent) < c.limit && !now.gap(c.ticked)
}

// tick looks at the clocks. It returns the time until the next look, and whether the edge has just begun
// to refuse requests because of a gap, or has to end all that run.
func (c *contact) tick() (next time.Duration, gap, cut bool) {
	now := c.clocks()
	c.mu.Lock()
	defer c.mu.Unlock()
	if gap = now.gap(c.ticked); gap {
		c.sent.Wall += min(0, now.Wall-c.ticked.Wall) // set back: it goes on from there
	}
	stood, elapsed := now.since(c.ticked), now.since(c.sent)
	c.ticked = now
	cut = c.runs && max(stood, elapsed) >= c.limit
	if gap || cut {
		c.drop()
	}
	if cut {
		c.runs = false
	}
	if c.runs {
		return min(tickTime, c.limit-elapsed), gap, cut
	}
	return tickTime, gap, cut
}

// age returns the time since the last confirmed contact, or since the start.
func (c *contact) age() time.Duration {
	now := c.clocks()
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.since(c.sent)
}
