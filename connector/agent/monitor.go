package agent

import (
	"log/slog"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/upstream"
)

// recentRequests is how many requests that are over are remembered.
const recentRequests = 5

// monitor watches a connector, for [Agent.Status].
type monitor struct {
	logger *slog.Logger

	mu      sync.Mutex
	changed chan struct{} // nil: it is not waited for
	state   state
	since   time.Time
	tunnel  *TunnelStatus
	rtt     func() time.Duration // of tunnel
	problem *Problem
	tunnels uint64

	running        int
	served, failed uint64
	counts         map[string]*upstreamCounts
	ring           [recentRequests]upstream.Request
	ended          int // requests, of which the last are in ring
}

// upstreamCounts are the requests of one upstream.
type upstreamCounts struct {
	running  int
	results  map[string]uint64
	answered uint64
	seconds  float64
	buckets  [len(DurationBounds)]uint64
}

// wake closes the channel of a change. The caller holds mu.
func (m *monitor) wake() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// recent returns the requests that ended last. The caller holds mu.
func (m *monitor) recent() []upstream.Request {
	n := min(m.ended, recentRequests)
	out := make([]upstream.Request, n)
	for i := range out {
		out[i] = m.ring[(m.ended-1-i)%recentRequests]
	}
	return out
}

// Begin implements [upstream.Observer].
func (m *monitor) Begin(upstream string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running++
	m.of(upstream).running++
	m.wake()
}

// of returns the counts of an upstream. The caller holds mu.
func (m *monitor) of(upstream string) *upstreamCounts {
	c := m.counts[upstream]
	if c == nil {
		if m.counts == nil {
			m.counts = make(map[string]*upstreamCounts)
		}
		c = &upstreamCounts{results: make(map[string]uint64)}
		m.counts[upstream] = c
	}
	return c
}

// End implements [upstream.Observer].
func (m *monitor) End(r upstream.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of(r.Upstream)
	m.running--
	c.running--
	c.results[r.Result]++
	if r.Status != 0 {
		seconds := r.Duration.Seconds()
		c.answered++
		c.seconds += seconds
		for i := len(DurationBounds) - 1; i >= 0 && seconds <= DurationBounds[i]; i-- {
			c.buckets[i]++
		}
	}
	if r.Status != 0 && r.Result == upstream.StatusClass(r.Status) {
		m.served++
	} else {
		m.failed++
	}
	m.ring[m.ended%recentRequests] = r
	m.ended++
	m.wake()
}
