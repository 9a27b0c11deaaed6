package agent

import (
	"maps"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/upstream"
)

// State is what a connector is doing.
type State string

// The states of a connector.
const (
	StateConnecting State = "connecting" // dialling, or waiting for the answer to a hello
	StateOnline     State = "online"     // the tunnel is up
	StateWaiting    State = "waiting"    // pausing before the next attempt
	StateDraining   State = "draining"   // stopping; running requests may finish
	StateStopped    State = "stopped"    // Run has returned
)

// Status is the status of a connector. It contains no secrets, and no contents of
// requests and answers.
type Status struct {
	State     State              `json:"state"`
	Since     time.Time          `json:"since"`     // of State
	Connector string             `json:"connector"` // id
	Server    string             `json:"server"`    // host:port of the gateway
	Tunnel    *TunnelStatus      `json:"tunnel,omitempty"`
	Problem   *Problem           `json:"problem,omitempty"`
	Upstreams []UpstreamStatus   `json:"upstreams"`
	Running   int                `json:"requests_running"`
	Served    uint64             `json:"requests_served"` // with a complete answer of any status
	Failed    uint64             `json:"requests_failed"` // without one
	Tunnels   uint64             `json:"tunnels"`         // established since the start
	Recent    []upstream.Request `json:"recent"`          // the last requests, the newest first
}

// TunnelStatus is the status of the current tunnel.
type TunnelStatus struct {
	Session        string        `json:"session"`
	Remote         string        `json:"remote"`
	Transport      string        `json:"transport"`
	GatewayVersion string        `json:"gateway_version"`
	RTT            time.Duration `json:"rtt_ns"`
}

// Problem is the reason why the tunnel is down.
type Problem struct {
	Reason  string    `json:"reason"`
	Fix     string    `json:"fix,omitempty"`
	RetryAt time.Time `json:"retry_at"` // zero: no further attempt
}

// UpstreamStatus is the status of one model server.
type UpstreamStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"` // host:port
	Running int    `json:"requests_running"`
	// State is one of the states in package upstream.
	State string `json:"state"`
	// Models are listed by the server; nil: unknown.
	Models []string `json:"models"`
	// Results counts requests by result: "2xx" to "5xx", or a reason.
	Results map[string]uint64 `json:"results"`
	// The number of answers, their total duration, and the number of those within each
	// of [DurationBounds].
	Answered uint64   `json:"answered"`
	Seconds  float64  `json:"seconds"`
	Buckets  []uint64 `json:"buckets"`
}

// DurationBounds are the bounds of UpstreamStatus.Buckets in seconds. Local
// models may take minutes.
var DurationBounds = [...]float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// Status returns the status of the connector. It is safe for concurrent use.
func (a *Agent) Status() Status {
	c := a.inUse()
	m := &a.monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.State, s.Connector, s.Server, s.Recent = states[m.state].shown, c.hello.Connector, c.quic.Server, m.recent()
	if s.Tunnel != nil {
		tunnel := *s.Tunnel
		tunnel.RTT = m.rtt().Round(10 * time.Microsecond)
		s.Tunnel = &tunnel
	}
	upstreams := c.proxy.Upstreams()
	for _, name := range upstreams.Names() {
		u := *m.of(name)
		u.Address, u.Results, u.Buckets = upstreams[name].Address, maps.Clone(u.Results), slices.Clone(u.Buckets)
		u.State, u.Models = upstreams[name].State()
		s.Upstreams = append(s.Upstreams, u)
	}
	return s
}

// Changed returns a channel that is closed when the state changes, or a request begins
// or ends.
func (a *Agent) Changed() <-chan struct{} {
	m := &a.monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}
