package agent

import (
	"context"
	"reflect"
	"slices"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/wait"
)

// checkEdges returns the edges in a message, none if they are invalid.
func (s *session) checkEdges(m link.Edges) link.Edges {
	if err := m.Check(); err != nil {
		s.leg.Logger.Warn("the gateway sent invalid edges; ignoring them", "session", s.welcome.Session, "error", err)
		return link.Edges{}
	}
	return m
}

// onEdges handles a change of the edges. A tunnel that was to be left may stay if its edge
// takes tunnels again.
func (s *session) onEdges(m link.Edges) {
	if m = s.checkEdges(m); m.Edge == "" {
		return
	}
	s.edges.Store(&m)
	if slices.ContainsFunc(m.List, func(e link.Edge) bool { return e.Name == s.welcome.Edge }) {
		s.leaving.Store(false)
	}
	if s.leg.use(s) {
		wait.Wake(s.leg.wake, struct{}{})
		s.leg.wakeOthers()
	}
}

// leave has the leg move the tunnel to another edge, if there is a cluster.
func (s *session) leave() {
	if s.welcome.Edge != "" && !s.leaving.Swap(true) {
		wait.Wake(s.leg.wake, struct{}{})
	}
}

// use makes the edges of a tunnel those of the agent, and reports whether they are different
// from before.
func (a *Agent) use(s *session) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := *s.edges.Load()
	if !s.config.samePlace(a.current) || reflect.DeepEqual(next, a.edges) {
		return false
	}
	a.edges = next
	return true
}

// join uses the edges in the welcome of a new tunnel, and starts the legs that they ask for.
func (l *leg) join(ctx context.Context, s *session) {
	if l.use(s) {
		l.wakeOthers()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.legs) < min(l.edges.Legs, maxLegs) {
		next := l.newLeg(l.retry)
		l.others.Go(func() {
			if wait.For(ctx, legPause) != nil {
				return
			}
			if err := next.run(ctx); err != nil {
				l.end(err)
			}
		})
	}
}

// surplus reports whether the gateway asks for fewer legs. The caller holds mu.
func (l *leg) surplus() bool { return l.number > 0 && l.number >= l.edges.Legs }

// dismiss removes a leg that is not needed, and reports whether it did.
func (l *leg) dismiss() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.surplus() {
		return false
	}
	l.legs = slices.DeleteFunc(slices.Clone(l.legs), func(other *leg) bool { return other == l })
	return true
}

// allLegs returns the legs, the first one first.
func (a *Agent) allLegs() []*leg {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clip(a.legs)
}

// aim returns the gateway that the leg dials next with a configuration, the zero value for the
// server of its token. It returns false if the other legs have all edges. The choice stays
// until it has failed several times.
func (l *leg) aim(c *configuration) (link.Edge, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.samePlace(l.current) {
		return link.Edge{}, true
	}
	targets := l.targets("")
	if len(targets) == 0 {
		return link.Edge{}, false
	}
	l.retry.rounds = len(targets) > 1
	if at := slices.Index(targets, l.target); at < 0 || l.tries >= targetAttempts {
		l.target, l.tries = targets[(at+1)%len(targets)], 0
	}
	return l.target, true
}

// aimed returns the last result of aim.
func (l *leg) aimed() link.Edge {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.target
}

// targetOf returns the gateway to dial for a tunnel with another configuration.
func (l *leg) targetOf(c *configuration) link.Edge {
	if !c.samePlace(l.inUse()) {
		return link.Edge{}
	}
	return l.aimed()
}

// targets returns what the leg can dial: the edges that are not used by other legs, except one,
// and for the first leg also the server of the token. The caller holds mu.
func (l *leg) targets(except string) (targets []link.Edge) {
	if l.number == 0 && except == "" {
		targets = []link.Edge{{}}
	}
	used := []string{except}
	for _, other := range l.legs {
		if other != l {
			used = append(used, other.target.Name)
		}
	}
	for _, s := range l.live {
		if s.leg != l && s.serves() {
			used = append(used, s.welcome.Edge)
		}
	}
	for _, e := range l.listed() {
		if !slices.Contains(used, e.Name) {
			used, targets = append(used, e.Name), append(targets, e)
		}
	}
	return targets
}

// listed returns the edges that the gateways have named, with repetitions: first those in the last
// message, then those of each tunnel. A gateway that shuts down may not know the newest edges.
// The caller holds mu.
func (l *leg) listed() []link.Edge {
	list := slices.Clone(l.edges.List)
	for _, s := range l.live {
		if s.serves() && s.config.samePlace(l.current) {
			list = append(list, s.edges.Load().List...)
		}
	}
	return list
}

// missed counts an attempt that failed. The leg leaves an edge that shuts down, or that has
// another leg's tunnel, at once.
func (l *leg) missed(end ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch kind := kindOf(end.err); {
	case kind == endGoingAway, kind == endHeld:
		l.tries = targetAttempts
	case end.lived > 0:
		l.tries = 0
	default:
		l.tries++
	}
}

// track records a tunnel to an edge while it is open.
func (s *session) track() {
	a := s.leg.Agent
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live = append(a.live, s)
	context.AfterFunc(s.conn.Context(), func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.live = slices.DeleteFunc(a.live, func(other *session) bool { return other == s })
	})
}

// serves reports whether a tunnel takes requests.
func (s *session) serves() bool { return !s.departed.Load() && s.conn.Context().Err() == nil }

// open returns the tunnels to edges that take requests.
func (a *Agent) open() (open []*session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.live {
		if s.serves() {
			open = append(open, s)
		}
	}
	return open
}

// held returns the edges of the tunnels that a hello must not replace.
func (p permit) held(a *Agent) (names []string) {
	for _, s := range a.open() {
		if s != p.old || p.purpose == newcomer {
			names = append(names, s.welcome.Edge)
		}
	}
	return names
}

// outdated reports whether the gateway of a tunnel has another configuration than the current
// one, which another leg has begun to use.
func (l *leg) outdated(s *session) bool { return !s.config.sameTunnel(l.inUse()) }

// obsolete reports whether a tunnel has no successor: the leg is not needed, or the current
// configuration leads elsewhere.
func (l *leg) obsolete(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.surplus() || !s.config.samePlace(l.current)
}

// quit drains an obsolete tunnel.
func (l *leg) quit(_, _ context.Context, s *session) *handover {
	if err := s.depart(); err != nil {
		s.close(link.CloseNone, err)
	}
	return &handover{err: errLeft}
}

// move replaces a tunnel with an outdated configuration, or to an edge that drains. The tunnel
// stays until that succeeds.
func (l *leg) move(search, ctx context.Context, s *session) *handover {
	for attempt := 0; ; attempt++ {
		c := l.inUse()
		target, as, ok := l.destination(s, attempt)
		if !ok {
			return rest(search, ctx, s) // until the edges change
		}
		h, err := l.succeed(search, permit{as, s, ctx}, c, l.runners(c, target, longDialTimeout)...)
		if err == nil {
			l.mu.Lock()
			l.target, l.tries = target, 0
			l.mu.Unlock()
		}
		if h != nil || search.Err() != nil {
			return h
		}
		pause := rescuePause/2 + l.retry.jitter(rescuePause)
		l.Logger.Warn("failed to replace the tunnel; it stays until that succeeds", "session", s.welcome.Session,
			"reason", reason(err), "retry_in", pause.String(), "edge", target.Name)
		if wait.For(search, pause) != nil {
			return nil
		}
	}
}

// destination returns where an attempt to move a tunnel leads, and the purpose of the hello
// there; false if there is no such edge.
func (l *leg) destination(s *session, attempt int) (link.Edge, purpose, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.leaving.Load() {
		return l.target, successor, true
	}
	targets := l.targets(s.welcome.Edge)
	if len(targets) == 0 {
		return link.Edge{}, newcomer, false
	}
	return targets[attempt%len(targets)], newcomer, true
}
