package agent

import (
	"maps"
	"time"

	"github.com/postern-dev/postern/connector/upstream"
)

// State says what a connector is doing.
type State string

// The states of a connector.
const (
	StateConnecting State = "connecting" // it dials, or waits for the answer to its hello
	StateOnline     State = "online"     // its tunnel is up
	StateWaiting    State = "waiting"    // it pauses before the next attempt
	StateDraining   State = "draining"   // it stops; running requests may finish
	StateStopped    State = "stopped"    // its Run is over
)

// Status is what a connector reports about itself. It holds no secrets, and
// nothing of what requests and answers say.
type Status struct {
	State     State              `json:"state"`
	Since     time.Time          `json:"since"`     // of State
	Connector string             `json:"connector"` // id
	Server    string             `json:"server"`    // host:port of the gateway
	Tunnel    *TunnelStatus      `json:"tunnel,omitempty"`
	Problem   *Problem           `json:"problem,omitempty"`
	Upstreams []UpstreamStatus   `json:"upstreams"`
	Running   int                `json:"requests_running"`
	Served    uint64             `json:"requests_served"` // with a whole answer, whatever it said
	Failed    uint64             `json:"requests_failed"` // without one
	Tunnels   uint64             `json:"tunnels"`         // that were up since the start
	Recent    []upstream.Request `json:"recent"`          // the last requests, the newest first
}

// TunnelStatus is the tunnel that is up.
type TunnelStatus struct {
	Session        string        `json:"session"`
	Remote         string        `json:"remote"`
	Transport      string        `json:"transport"`
	GatewayVersion string        `json:"gateway_version"`
	RTT            time.Duration `json:"rtt_ns"`
}

// Problem is why there is no tunnel.
type Problem struct {
	Reason  string    `json:"reason"`
	Fix     string    `json:"fix,omitempty"`
	RetryAt time.Time `json:"retry_at"` // zero: it will not be tried again
}

// UpstreamStatus is one model server.
type UpstreamStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"` // host:port
	Running int    `json:"requests_running"`
	// State is one of the states in package upstream.
	State string `json:"state"`
	// Models are those that it lists; nil: it does not say.
	Models []string `json:"models"`
	// Results counts requests by how they ended: "2xx" to "5xx", or a reason.
	Results map[string]uint64 `json:"results"`
	// Durations of what was answered, of all and by the bounds in
	// [DurationBounds]; each counts what is at most its bound.
	Answered uint64   `json:"answered"`
	Seconds  float64  `json:"seconds"`
	Buckets  []uint64 `json:"buckets"`
}

// DurationBounds are the bounds of UpstreamStatus.Buckets in seconds. Local
// models may take minutes.
var DurationBounds = [...]float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// Status returns what the connector is doing. It may be called at any time.
func (a *Agent) Status() Status {
	c := a.inUse()
	m := &a.monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Status{
		State: states[m.state].shown, Since: m.since, Connector: c.hello.Connector, Server: c.quic.Server, Problem: m.problem,
		Running: m.running, Served: m.served, Failed: m.failed, Tunnels: m.tunnels, Recent: m.recent(),
	}
	if m.tunnel != nil {
		tunnel := *m.tunnel
		tunnel.RTT = m.rtt().Round(10 * time.Microsecond)
		s.Tunnel = &tunnel
	}
	upstreams := c.proxy.Upstreams()
	for _, name := range upstreams.Names() {
		u := UpstreamStatus{Name: name, Address: upstreams[name].Address, Results: map[string]uint64{}, Buckets: make([]uint64, len(DurationBounds))}
		u.State, u.Models = upstreams[name].State()
		if count := m.counts[name]; count != nil {
			u.Running, u.Answered, u.Seconds = count.running, count.answered, count.seconds
			maps.Copy(u.Results, count.results)
			copy(u.Buckets, count.buckets[:])
		}
		s.Upstreams = append(s.Upstreams, u)
	}
	return s
}

// Changed returns a channel that is closed when the state has changed, or a
// request has begun or ended, since the call.
func (a *Agent) Changed() <-chan struct{} {
	m := &a.monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}
