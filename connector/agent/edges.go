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

// onEdges handles a change of the edges. A leg no longer leaves an edge that takes tunnels
// again.
func (s *session) onEdges(m link.Edges) {
	if m = s.checkEdges(m); m.Edge == "" {
		return
	}
	s.edges.Store(&m)
	if slices.ContainsFunc(m.List, func(e link.Edge) bool { return e.Name == s.welcome.Edge }) {
		s.leaving.Store(false)
	}
	if s.leg.useEdges(s) {
		wait.Wake(s.leg.wake, struct{}{})
		s.leg.wakeOthers()
	}
}

// leaveEdge starts a move to another edge. It has no effect without a cluster.
func (s *session) leaveEdge() {
	if s.welcome.Edge != "" && !s.leaving.Swap(true) {
		wait.Wake(s.leg.wake, struct{}{})
	}
}

// useEdges adopts the edges that a tunnel has received, and reports whether they have changed.
func (i *instance) useEdges(s *session) (changed bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	next := *s.edges.Load()
	if reflect.DeepEqual(next, i.edges) {
		return false
	}
	i.edges = next
	return true
}

// join uses the edges in the welcome of a new tunnel, and starts the legs that they ask for.
func (l *leg) join(ctx context.Context, s *session) {
	if l.useEdges(s) {
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

// isSurplus reports whether the gateway asks for fewer legs.
func (l *leg) isSurplus() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.number > 0 && l.number >= l.edges.Legs
}

// remove removes a leg that is not needed, and reports whether it did.
func (l *leg) remove() bool {
	if !l.isSurplus() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.legs = slices.DeleteFunc(slices.Clone(l.legs), func(other *leg) bool { return other == l })
	return true
}

// allLegs returns the legs, the first one first.
func (i *instance) allLegs() []*leg {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clip(i.legs)
}

// knownEdges returns the edges in the last message of a gateway.
func (i *instance) knownEdges() link.Edges {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.edges
}

// chooseTarget returns the gateway that the leg dials next. The zero value
// is the server of its token; false means that the other legs use all edges. The choice stays
// until it fails.
func (l *leg) chooseTarget() (link.Edge, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	targets := l.targets("")
	if len(targets) == 0 {
		return link.Edge{}, false
	}
	if i := slices.Index(targets, l.target); i < 0 || l.failed {
		l.target, l.failed = targets[(i+1)%len(targets)], false
	}
	return l.target, true
}

// currentTarget returns the last result of chooseTarget.
func (l *leg) currentTarget() link.Edge {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.target
}

// targets returns the gateways that the leg can dial: edges other than except that no other
// leg uses. The first leg can also dial the server of the token, unless it leaves an edge. The
// caller holds mu.
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

// listed returns the edges that the gateways have named, with repetitions: first those in the
// last message, then those of each tunnel. A gateway that shuts down may not know the newest
// edges. The caller holds mu.
func (l *leg) listed() []link.Edge {
	list := slices.Clone(l.edges.List)
	for _, s := range l.live {
		if s.serves() {
			list = append(list, s.edges.Load().List...)
		}
	}
	return list
}

// noteEnd decides whether the leg dials the next edge: after a failed attempt, and after an edge that
// shuts down or has the tunnel of another leg.
func (l *leg) noteEnd(end ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := kindOf(end.err)
	l.failed = end.lived == 0 || kind == endGoingAway || kind == endEdgeInUse
}

// track records a tunnel to an edge while it is open.
func (s *session) track() {
	a := s.leg.instance
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

// servingTunnels returns the tunnels to edges that take requests.
func (i *instance) servingTunnels() (serving []*session) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range i.live {
		if s.serves() {
			serving = append(serving, s)
		}
	}
	return serving
}

// otherEdges returns the edges of the tunnels that a hello must not replace.
func (i *instance) otherEdges(replaces *session) (names []string) {
	for _, s := range i.servingTunnels() {
		if s != replaces {
			names = append(names, s.welcome.Edge)
		}
	}
	return names
}

// destination returns the gateway of an attempt to move a tunnel to another edge. It returns false if no
// other edge exists.
func (l *leg) destination(s *session, attempt int) (link.Edge, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	targets := l.targets(s.welcome.Edge)
	if len(targets) == 0 {
		return link.Edge{}, false
	}
	return targets[attempt%len(targets)], true
}
