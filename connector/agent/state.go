package agent

import (
	"slices"
	"time"
)

// state is the state of an agent: see the package's documentation.
type state int

const (
	stopped    state = iota // Run was not called, or has returned
	connecting              // dialing, or waiting for the answer to a hello
	online                  // the tunnel is up
	silent                  // the tunnel does not answer; dialing
	retrying                // the tunnel does not answer; pausing between attempts
	leaving                 // the tunnel is being drained for a successor
	waiting                 // pausing before the next attempt
	draining                // stopping; running requests may finish
)

// states lists how [Status] shows each state, and the states that may follow.
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

// enter changes the state. A nil problem keeps the last one.
func (m *monitor) enter(to state, problem *Problem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(to)
	if problem != nil {
		m.status.Problem = problem
	}
}

// online enters the state online. isNew is set for a new tunnel.
func (m *monitor) online(s *session, isNew bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(online)
	if m.state != online {
		return
	}
	m.tunnel, m.status.Problem = s, nil
	if isNew {
		m.status.Tunnels++
	}
}

// change changes the state. After draining, only stopped is accepted. The caller holds mu.
func (m *monitor) change(to state) {
	if m.state == draining && to != stopped {
		return
	}
	if !slices.Contains(states[m.state].next, to) {
		m.logger.Error("unexpected state transition", "from", int(m.state), "to", int(to))
	}
	m.state = to
	if to != leaving {
		m.status.Since = time.Now()
	}
	if to != leaving && to != draining { // these keep the tunnel
		m.tunnel = nil
	}
	m.wake()
}
