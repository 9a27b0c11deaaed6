package agent

import (
	"slices"
	"time"
)

// state is the state of a leg: see the package's documentation.
type state int

const (
	stopped    state = iota // Run was not called, or has returned
	connecting              // dialing, or waiting for the answer to a hello
	online                  // the tunnel is up
	waiting                 // pausing before the next attempt
	draining                // stopping; running requests may finish
)

// phase is what a leg is doing.
type phase struct {
	state   state
	since   time.Time
	problem *Problem
	tunnel  *session // nil: none is up
}

// states lists how [Status] shows each state, and the states that may follow.
var states = [...]struct {
	shown State
	next  []state
}{
	stopped:    {StateStopped, []state{connecting}},
	connecting: {StateConnecting, []state{online, waiting, draining, stopped}},
	online:     {StateOnline, []state{online, waiting, draining, stopped}},
	waiting:    {StateWaiting, []state{connecting, draining, stopped}},
	draining:   {StateDraining, []state{stopped}},
}

// enter changes the state. A nil problem keeps the last one.
func (l *leg) enter(next state, problem *Problem) {
	m := &l.monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	l.change(next)
	if problem != nil {
		l.phase.problem = problem
	}
}

// online enters the state online with a new tunnel.
func (l *leg) online(s *session) {
	m := &l.monitor
	m.mu.Lock()
	defer m.mu.Unlock()
	l.change(online)
	if l.phase.state != online {
		return
	}
	l.phase.tunnel, l.phase.problem = s, nil
	m.status.Tunnels++
}

// change changes the state. After draining, only stopped is accepted. The caller holds the
// monitor's mu.
func (l *leg) change(next state) {
	p := &l.phase
	if p.state == draining && next != stopped {
		return
	}
	if !slices.Contains(states[p.state].next, next) {
		l.Logger.Error("unexpected state transition", "from", int(p.state), "to", int(next))
	}
	p.state = next
	p.since = time.Now()
	if next != draining { // which keeps the tunnel
		p.tunnel = nil
	}
	l.monitor.changed.Now()
}
