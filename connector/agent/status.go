package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/upstream"
	"github.com/postern-dev/postern/connector/wait"
)

// State is what a connector, or a leg, is doing: see the package's documentation.
type State string

// The states of a connector.
const (
	StateConnecting State = "connecting" // dialing, or waiting for the answer to a hello
	StateOnline     State = "online"     // the tunnel is up
	StateWaiting    State = "waiting"    // pausing before the next attempt
	StateDraining   State = "draining"   // stopping; running requests may finish
	StateStopped    State = "stopped"    // Run has returned
)

// Status is the status of a connector. It contains no secrets, and no contents of
// requests and answers.
type Status struct {
	State     State         `json:"state"`
	Since     time.Time     `json:"since"`     // of State
	Connector string        `json:"connector"` // id
	Server    string        `json:"server"`    // host:port of the gateway
	Tunnel    *TunnelStatus `json:"tunnel,omitempty"`
	Problem   *Problem      `json:"problem,omitempty"`
	// Legs lists all tunnels to the gateways of a cluster. State, Tunnel and Problem are those
	// of the first tunnel that is up.
	Legs      []LegStatus        `json:"legs,omitempty"`
	Upstreams []UpstreamStatus   `json:"upstreams"`
	Running   int                `json:"requests_running"`
	Served    uint64             `json:"requests_served"` // with a complete answer of any status
	Failed    uint64             `json:"requests_failed"` // without a complete answer
	Tunnels   uint64             `json:"tunnels"`         // established since the start
	Recent    []upstream.Request `json:"recent"`          // the last requests, the newest first
}

// LegStatus is the status of the tunnel to a gateway of a cluster.
type LegStatus struct {
	Edge    string        `json:"edge"` // name of the gateway
	State   State         `json:"state"`
	Since   time.Time     `json:"since"` // of State
	Tunnel  *TunnelStatus `json:"tunnel,omitempty"`
	Problem *Problem      `json:"problem,omitempty"`
}

// TunnelStatus is the status of the current tunnel.
type TunnelStatus struct {
	Session        string        `json:"session"`
	Remote         string        `json:"remote"`
	Transport      string        `json:"transport"`
	GatewayVersion string        `json:"gateway_version"`
	RTT            time.Duration `json:"rtt_ns"`
}

// Problem describes why the tunnel is down.
type Problem struct {
	Reason  string    `json:"reason"`
	Fix     string    `json:"fix,omitempty"`
	RetryAt time.Time `json:"retry_at"` // zero: no further attempt
}

// String returns the reason and the fix.
func (p *Problem) String() string {
	if p.Fix == "" {
		return p.Reason
	}
	return p.Reason + "; " + p.Fix
}

// UpstreamStatus is the status of one model server.
type UpstreamStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"` // host:port
	// OneModel: the server loads one model at a time.
	OneModel bool `json:"one_model_at_a_time,omitempty"`
	Running  int  `json:"requests_running"`
	// State is one of the states in package upstream.
	State string `json:"state"`
	// Models are listed by the server; nil: unknown.
	Models []string `json:"models"`
	// Results counts requests by result: "2xx" to "5xx", or a reason.
	Results map[string]uint64 `json:"results"`
	// Answered counts answers, Seconds is their total duration, and Buckets counts the
	// answers within each of [DurationBounds].
	Answered uint64   `json:"answered"`
	Seconds  float64  `json:"seconds"`
	Buckets  []uint64 `json:"buckets"`
}

// DurationBounds are the bounds of UpstreamStatus.Buckets in seconds. Local
// models may take minutes.
var DurationBounds = [...]float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// Status returns the status of the connector. It is safe for concurrent use.
func (a *Agent) Status() Status {
	running := a.current.Load()
	c, m := running.config, &a.monitor
	running.mu.Lock()
	defer running.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.Connector, s.Server = c.hello.Connector, c.quic.Server
	s.Recent = slices.Clone(m.last[:min(s.Served+s.Failed, recentRequests)])
	shown := running.legs[0].phase.status()
	for _, l := range running.legs {
		status := l.phase.status()
		status.Edge = l.edge
		if status.State == StateOnline && shown.State != StateOnline {
			shown = status
		}
		if status.Edge != "" {
			s.Legs = append(s.Legs, status)
		}
	}
	s.State, s.Since, s.Tunnel, s.Problem = shown.State, shown.Since, shown.Tunnel, shown.Problem
	upstreams := c.proxy.Upstreams()
	for _, name := range upstreams.Names() {
		u := *m.countsOf(name)
		u.Address, u.Results, u.Buckets = upstreams[name].Address, maps.Clone(u.Results), slices.Clone(u.Buckets)
		u.State, u.Models = upstreams[name].State()
		u.OneModel = slices.Contains(c.hello.OneModel, name)
		s.Upstreams = append(s.Upstreams, u)
	}
	return s
}

// status returns the status of a leg. The caller holds the monitor's mu.
func (p *phase) status() LegStatus {
	s := LegStatus{State: p.state, Since: p.since, Problem: p.problem}
	if t := p.tunnel; t != nil {
		s.Tunnel = &TunnelStatus{
			Session: t.welcome.Session, Remote: t.conn.RemoteAddr().String(), Transport: t.conn.Transport(),
			GatewayVersion: t.welcome.Version, RTT: t.conn.RTT().Round(10 * time.Microsecond),
		}
	}
	return s
}

// Changed returns a channel that is closed when the state changes, or a request begins
// or ends.
func (a *Agent) Changed() <-chan struct{} {
	return a.monitor.changed.Next()
}

// recentRequests is the number of finished requests in the status.
const recentRequests = 5

// monitor collects the state of a connector for [Agent.Status].
type monitor struct {
	mu      sync.Mutex
	changed wait.Change
	status  Status // only the fields that are counted here

	counts map[string]*UpstreamStatus       // by name
	last   [recentRequests]upstream.Request // finished, the newest first
}

// Begin implements [upstream.Observer].
func (m *monitor) Begin(upstream string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status.Running++
	m.countsOf(upstream).Running++
	m.changed.Now()
}

// countsOf returns the counts of an upstream. The caller holds mu.
func (m *monitor) countsOf(upstream string) *UpstreamStatus {
	if m.counts == nil {
		m.counts = make(map[string]*UpstreamStatus)
	}
	if m.counts[upstream] == nil {
		m.counts[upstream] = &UpstreamStatus{
			Name: upstream, Results: map[string]uint64{},
			Buckets: make([]uint64, len(DurationBounds)),
		}
	}
	return m.counts[upstream]
}

// End implements [upstream.Observer].
func (m *monitor) End(r upstream.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.countsOf(r.Upstream)
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
	copy(m.last[1:], m.last[:])
	m.last[0] = r
	m.changed.Now()
}
