package agent

import "time"

// phase is what a leg is doing.
type phase struct {
	state     State
	since     time.Time // of state
	problem   *Problem
	tunnel    *session  // nil: none is up
	downSince time.Time // when the last tunnel ended, or the leg was created
}

// enter changes the state. A nil problem keeps the last one.
func (l *leg) enter(next State, problem *Problem) {
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
	l.change(StateOnline)
	if l.phase.state != StateOnline {
		return
	}
	l.phase.tunnel, l.phase.problem = s, nil
	m.status.Tunnels++
}

// change changes the state. After draining, only stopped is accepted. The caller holds the
// monitor's mu.
func (l *leg) change(next State) {
	p := &l.phase
	if p.state == StateDraining && next != StateStopped {
		return
	}
	p.state = next
	p.since = time.Now()
	if p.tunnel != nil || p.downSince.IsZero() {
		p.downSince = p.since
	}
	if next != StateDraining { // which keeps the tunnel
		p.tunnel = nil
	}
	l.monitor.changed.Now()
}
