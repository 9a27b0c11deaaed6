package agent

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// recentRequests is how many requests that are over are remembered.
const recentRequests = 5

// monitor watches a connector, for [Agent.Status]. The zero value works.
type monitor struct {
	writers sync.Pool // of *watchedWriter

	mu      sync.Mutex
	changed chan struct{} // nil: nobody waits
	state   State
	since   time.Time
	tunnel  *TunnelStatus
	rtt     func() time.Duration // of tunnel
	problem *Problem
	tunnels uint64

	running        int
	served, failed uint64
	counts         map[string]*upstreamCounts
	ring           [recentRequests]RequestStatus
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

// enter notes a state. The caller holds mu.
func (m *monitor) enter(state State) {
	m.state, m.since, m.tunnel, m.rtt = state, time.Now(), nil, nil
	m.wake()
}

// wake wakes those who wait for a change. The caller holds mu.
func (m *monitor) wake() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// connecting keeps the problem of the last attempt: it is most likely still
// there.
func (m *monitor) connecting() { m.enterLocked(StateConnecting, nil) }

func (m *monitor) draining() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.since = StateDraining, time.Now() // on the same tunnel
	m.wake()
}

func (m *monitor) stopped() { m.enterLocked(StateStopped, nil) }

// gaveUp is stopped for good, and why.
func (m *monitor) gaveUp(reason, fix string) {
	m.enterLocked(StateStopped, &Problem{Reason: reason, Fix: fix})
}

func (m *monitor) waiting(reason, fix string, pause time.Duration) {
	m.enterLocked(StateWaiting, &Problem{Reason: reason, Fix: fix, RetryAt: time.Now().Add(pause)})
}

func (m *monitor) enterLocked(state State, problem *Problem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(state)
	if problem != nil {
		m.problem = problem
	}
}

func (m *monitor) online(tunnel TunnelStatus, rtt func() time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(StateOnline)
	m.tunnel, m.rtt, m.problem = &tunnel, rtt, nil
	m.tunnels++
}

// silent is connecting beside a tunnel.
func (m *monitor) silent(reason, fix string) {
	m.enterLocked(StateConnecting, &Problem{Reason: reason, Fix: fix, RetryAt: time.Now()})
}

// heard is online again, on the same tunnel.
func (m *monitor) heard(tunnel TunnelStatus, rtt func() time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enter(StateOnline)
	m.tunnel, m.rtt, m.problem = &tunnel, rtt, nil
}

// recent returns the requests that ended last. The caller holds mu.
func (m *monitor) recent() []RequestStatus {
	n := min(m.ended, recentRequests)
	out := make([]RequestStatus, n)
	for i := range out {
		out[i] = m.ring[(m.ended-1-i)%recentRequests]
	}
	return out
}

func (m *monitor) begin(upstream string) {
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

// end counts a request that is over.
func (m *monitor) end(r RequestStatus) {
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
	if r.Status != 0 && r.Result == statusClass(r.Status) {
		m.served++
	} else {
		m.failed++
	}
	m.ring[m.ended%recentRequests] = r
	m.ended++
	m.wake()
}

// statusClass is the kind of an HTTP status, as Prometheus habits have it.
func statusClass(status int) string { return strconv.Itoa(status/100) + "xx" }

// watched is a proxy whose requests the monitor sees.
type watched struct {
	monitor *monitor
	prober  *prober
	proxy   *proxy
}

// ServeHTTP implements [http.Handler].
func (h *watched) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := h.monitor
	request := RequestStatus{At: time.Now(), Method: r.Method, Path: r.URL.Path, Upstream: r.Host}
	u := h.proxy.upstream(r.Host)
	if u == nil || !u.allows(r) {
		// Neither a name that nobody gave nor a path that may hold anything is
		// remembered.
		u, request.Path, request.Upstream = nil, "", ""
	}
	m.begin(request.Upstream)
	writer, _ := m.writers.Get().(*watchedWriter)
	if writer == nil {
		writer = new(watchedWriter)
	}
	*writer = watchedWriter{ResponseWriter: w.(link.ResponseWriter), result: link.CodeInternal.String(), prober: h.prober, upstream: u}
	defer func() {
		request.Status, request.Result, request.Bytes = writer.status, writer.result, writer.bytes
		request.Duration = time.Since(request.At)
		*writer = watchedWriter{}
		m.writers.Put(writer)
		m.end(request)
	}()
	h.proxy.ServeHTTP(writer, r)
	writer.finish()
}

// watchedWriter notes how an answer goes on.
type watchedWriter struct {
	link.ResponseWriter
	status  int
	bytes   int64
	aborted bool
	result  string // of a panic, until something else is known

	prober   *prober
	upstream *upstream // nil: the request may not reach any
}

func (w *watchedWriter) WriteHeader(status int) {
	w.status = status
	if w.upstream != nil {
		w.prober.answered(w.upstream, status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watchedWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Abort implements [link.ResponseWriter].
func (w *watchedWriter) Abort(code link.Code) {
	w.aborted, w.result = true, code.String()
	if w.upstream != nil {
		w.prober.failed(w.upstream, code)
	}
	w.ResponseWriter.Abort(code)
}

// finish notes an answer that came to its end.
func (w *watchedWriter) finish() {
	if !w.aborted {
		w.result = statusClass(w.status)
	}
}
