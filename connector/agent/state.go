package agent

import (
	"slices"
	"time"
)

// state is the state of an agent: see the package's documentation.
type state int

const (
	stopped    state = iota // Run is not called, or is over
	connecting              // it dials, or waits for the answer to its hello
	online                  // its tunnel is up
	silent                  // its tunnel does not answer, and it dials
	retrying                // its tunnel does not answer, and it pauses between attempts
	leaving                 // it has announced that it leaves its tunnel for a successor
	waiting                 // it pauses before the next attempt
	draining                // it stops; running requests may finish
)

// states has how [Status] shows each state, and the states that may follow.
var states = [...]struct {
	shown State
	next  []state
}{
	stopped:    {StateStopped, []state{connecting}},
	connecting: {StateConnecting, []state{online, waiting, draining, stopped}},
	online:     {StateOnline, []state{online, silent, leaving, waiting, draining, stopped}},
	silent:     {StateConnecting, []state{online, retrying, waiting, draining, stopped}},
	retrying:   {StateWaiting, []state{silent, online, waiting, draining, stopped}},
	leaving:    {StateOnline, []state{online, waiting, draining, stopped}},
	waiting:    {StateWaiting, []state{connecting, draining, stopped}},
	draining:   {StateDraining, []state{stopped}},
}

// enter changes the state. A nil problem leaves the last one.
func (m *monitor) enter(to state, problem *Problem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(to)
	if problem != nil {
		m.status.Problem = problem
	}
}

// online is enter for a tunnel that is up; isNew: for the first time.
func (m *monitor) online(s *session, isNew bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(online)
	if m.state != online {
		return
	}
	m.status.Tunnel = &TunnelStatus{
		Session: s.welcome.Session, Remote: s.conn.RemoteAddr().String(), Transport: s.conn.Transport(), GatewayVersion: s.welcome.Version,
	}
	m.rtt, m.status.Problem = s.conn.RTT, nil
	if isNew {
		m.status.Tunnels++
	}
}

// change does enter's work. Only the end follows a drain, whatever was under way when
// it began. The caller holds mu.
func (m *monitor) change(to state) {
	if m.state == draining && to != stopped {
		return
	}
	if !slices.Contains(states[m.state].next, to) {
		m.logger.Error("unexpected change of state", "from", int(m.state), "to", int(to))
	}
	m.state = to
	if to != leaving {
		m.status.Since = time.Now()
	}
	if to != leaving && to != draining { // these keep the tunnel
		m.status.Tunnel, m.rtt = nil, nil
	}
	m.wake()
}
