package agent

import (
	"log/slog"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/upstream"
)

// recentRequests is the number of finished requests in the status.
const recentRequests = 5

// monitor collects the state of a connector for [Agent.Status].
type monitor struct {
	logger *slog.Logger

	mu      sync.Mutex
	changed chan struct{} // closed on a change; nil: nothing waits for one
	state   state
	status  Status               // only the fields that are counted or set here
	rtt     func() time.Duration // of the tunnel

	counts map[string]*UpstreamStatus // by name
	ring   [recentRequests]upstream.Request
	ended  int // finished requests; the last are in ring
}

// wake notifies of a change. The caller holds mu.
func (m *monitor) wake() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// recent returns the last finished requests, the newest first. The caller holds mu.
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
	m.status.Running++
	m.of(upstream).Running++
	m.wake()
}

// of returns the counts of an upstream. The caller holds mu.
func (m *monitor) of(upstream string) *UpstreamStatus {
	if m.counts == nil {
		m.counts = make(map[string]*UpstreamStatus)
	}
	if m.counts[upstream] == nil {
		m.counts[upstream] = &UpstreamStatus{Name: upstream, Results: map[string]uint64{}, Buckets: make([]uint64, len(DurationBounds))}
	}
	return m.counts[upstream]
}

// End implements [upstream.Observer].
func (m *monitor) End(r upstream.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.of(r.Upstream)
	m.status.Running--
	c.Running--
	c.Results[r.Result]++
	if r.Status != 0 {
		seconds := r.Duration.Seconds()
		c.Answered++
		c.Seconds += seconds
		for i := len(DurationBounds) - 1; i >= 0 && seconds <= DurationBounds[i]; i-- {
			c.Buckets[i]++
		}
	}
	if r.Status != 0 && r.Result == upstream.StatusClass(r.Status) {
		m.status.Served++
	} else {
		m.status.Failed++
	}
	m.ring[m.ended%recentRequests] = r
	m.ended++
	m.wake()
}
