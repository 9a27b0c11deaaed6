package cluster

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The times of the rule for lost edges, see the package comment.
const (
	leaseTime   = 15 * time.Second // of a report
	serveTime   = 10 * time.Second // that an edge serves after its last contact
	contactTime = 6 * time.Second  // after its last contact, before it tells its peers
	wordTime    = 2 * time.Second  // that such an answer of a peer counts
	quietTime   = 3 * time.Second  // after such an answer, before it reports again
)

// contact decides whether an edge may accept requests. Times are durations since start, on
// the clock that does not jump.
type contact struct {
	start    time.Time
	maxStale time.Duration

	until atomic.Int64 // the edge accepts requests before this time; see serving
	lent  atomic.Int64 // and before this one, which it has from a peer

	mu         sync.Mutex
	last       time.Duration            // when the latest renewal that was answered was sent
	claimed    time.Duration            // until when the edge says that it has contact in any case
	said       time.Duration            // when the edge last told a peer that it has no contact
	period     int64                    // random, for Report.Contact
	electorate []string                 // the instances of the others in the saved record; nil while it is being changed
	words      map[string]time.Duration // by instances: until when the answers of peers without contact count
}

func newContact(maxStale time.Duration) *contact {
	// What has never happened was an hour ago. The process before this one may just have told a
	// peer that it has no contact.
	return &contact{
		start: time.Now().Add(-time.Hour), maxStale: maxStale, said: time.Hour, period: rand.Int64(), words: map[string]time.Duration{},
	}
}

func (c *contact) now() time.Duration { return time.Since(c.start) }

// serving reports whether the edge may accept a request now.
func (c *contact) serving() bool {
	now := int64(c.now())
	return now < c.until.Load() || now < c.lent.Load()
}

// answered makes the edge serve: at a time or later it had all changes, and the store has
// renewed its lease.
func (c *contact) answered(sent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, sent)
	c.extend(sent + serveTime)
}

// claim makes the edge say for a time that it has contact, before it changes its record.
func (c *contact) claim(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claimed = c.now() + d
}

// refuse makes the edge refuse requests until the store answers, or a peer lends it time.
func (c *contact) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until.Store(0)
	c.lent.Store(0)
}

func (c *contact) extend(until time.Duration) {
	c.until.Store(max(c.until.Load(), int64(until)))
}

// answer returns what the edge answers a peer that asks whether it has contact to the store,
// and if not, how long it accepts requests.
func (c *contact) answer() (hasStore bool, serves time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now < max(c.last+contactTime, c.claimed) {
		return true, 0
	}
	c.said, c.period = now, rand.Int64()
	until := time.Duration(max(c.until.Load(), c.lent.Load()))
	return false, min(max(0, until-now), wordTime)
}

// onAnswer notes what a peer has answered to a question that was sent at a time: whether it has
// contact, and if not, for how long it lends its time to this edge.
func (c *contact) onAnswer(instance string, sent time.Duration, hasStore bool, lends time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.words, instance)
	if hasStore {
		return
	}
	c.words[instance] = sent + wordTime
	if c.maxStale > 0 {
		c.lent.Store(max(c.lent.Load(), int64(sent+lends)))
	}
}

// trust extends the time of an edge without contact while most of the electorate are without
// contact, too: then the store is down, not this edge. Once that time has ended, only contact
// to the store begins it again.
func (c *contact) trust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.maxStale > 0 && c.electorate != nil && int64(c.now()) < c.until.Load() {
		c.extend(min(c.majority(), c.last+c.maxStale))
	}
}

// majority returns until when most of the electorate, with this edge, are without contact.
func (c *contact) majority() time.Duration {
	need := (len(c.electorate) + 1) / 2 // of the others, with this edge more than half of all
	if need == 0 {
		return c.now() + wordTime
	}
	var words []time.Duration
	for _, instance := range c.electorate {
		if until, ok := c.words[instance]; ok {
			words = append(words, until)
		}
	}
	if len(words) < need {
		return 0
	}
	slices.Sort(words)
	return words[len(words)-need]
}

// setElectorate sets the other edges of the edge's record, or nil while that is being changed.
func (c *contact) setElectorate(others []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.electorate = others
}

// mayReport returns Report.Contact, and how long the edge has to wait before it reports.
func (c *contact) mayReport() (period int64, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.period, max(0, c.said+quietTime-c.now())
}

// stale returns how long ago the edge had contact to the store.
func (c *contact) stale() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now() - c.last
}
