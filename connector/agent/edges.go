package agent

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
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

// onEdges handles a change of the edges.
func (s *session) onEdges(m link.Edges) {
	if m = s.checkEdges(m); m.Edge != "" && s.welcome.Edge != "" {
		s.leg.useEdges(m.List, legPause)
	}
}

// join uses the edges in the welcome of a new tunnel. A balancer, or the name in the token, can lead to the edge of
// another leg: then the two exchange their edges.
func (l *leg) join(s *session) {
	edge := s.welcome.Edge
	if edge == "" {
		return
	}
	l.mu.Lock()
	for _, other := range l.legs {
		if other.edge == edge {
			other.edge = l.edge
		}
	}
	l.edge = edge
	l.mu.Unlock()
	l.useEdges(s.welcome.List, legPause)
}

// useEdges adopts the edges in a message: it starts a leg for each edge without one, after a random part of a pause,
// and wakes the legs whose edge was started or removed.
func (i *instance) useEdges(edges []link.Edge, pause time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ctx.Err() != nil {
		return
	}
	former := i.edges
	i.edges = edges
	for _, l := range i.legs {
		e, _ := l.listed()
		if !slices.Contains(former, e) {
			wait.Wake(l.wake, struct{}{})
		}
	}
	for _, e := range edges {
		if slices.ContainsFunc(i.legs, func(l *leg) bool { return l.edge == e.Name }) {
			continue
		}
		next := i.newLeg(i.legs[0].retry.random) // the rest of retry belongs to that leg
		next.edge = e.Name
		i.runLeg(next, next.retry.jitter(pause))
	}
}

// knownEdges returns the edges, and that of the first leg.
func (i *instance) knownEdges() (edges []link.Edge, first string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.edges, i.legs[0].edge
}

// listed returns the leg's edge, if it is in the list: it takes tunnels. The caller holds mu.
func (l *leg) listed() (link.Edge, bool) {
	n := slices.IndexFunc(l.edges, func(e link.Edge) bool { return e.Name == l.edge })
	if n < 0 {
		return link.Edge{}, false
	}
	return l.edges[n], true
}

// remove removes a leg whose edge is not in the list, unless it is the only leg. It reports whether it did.
func (l *leg) remove() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.listed(); ok || len(l.legs) == 1 {
		return false
	}
	l.legs = slices.DeleteFunc(slices.Clone(l.legs), func(other *leg) bool { return other == l })
	return true
}

// allLegs returns the legs, the first one first.
func (i *instance) allLegs() []*leg {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clip(i.legs)
}

// notAtAfter is how long a leg is without a tunnel before the connector reports that to other edges.
const notAtAfter = 15 * time.Second

// notAt returns the listed edges to which there has been no tunnel for a while.
func (i *instance) notAt() (list []link.NotAt) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.monitor.mu.Lock()
	defer i.monitor.mu.Unlock()
	for _, l := range i.legs {
		p, down := &l.phase, time.Since(l.phase.downSince)
		if e, ok := l.listed(); ok && p.tunnel == nil && p.problem != nil && down >= i.notAtAfter {
			reason := text.Short(p.problem.Reason)
			list = append(list, link.NotAt{Edge: e.Name, Reason: reason, Millis: down.Milliseconds()})
		}
	}
	return list
}

func sameReason(a, b link.NotAt) bool { return a.Edge == b.Edge && a.Reason == b.Reason }

// target returns the gateway that the leg dials: its edge, or the server of the token, which is the zero value.
func (l *leg) target() (target link.Edge) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.byToken {
		target, _ = l.listed()
	}
	return target
}

// alternateTarget lets the first leg dial its edge and the server of the token in turn: after a failed attempt, and
// after an edge that shuts down. The list of edges may be old.
func (l *leg) alternateTarget(end ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l == l.legs[0] && (end.lived == 0 || kindOf(end.err) == endGoingAway) {
		l.byToken = !l.byToken
	}
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
func (s *session) serves() bool { return !s.drainSent.Load() && s.conn.Context().Err() == nil }

// otherEdges returns the edges of the tunnels that a hello must not replace: of too many, the newest ones.
func (i *instance) otherEdges(replaces *session) (names []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range i.live {
		if s != replaces && s.serves() {
			names = append(names, s.welcome.Edge)
		}
	}
	return names[max(0, len(names)-link.MaxOtherEdges):]
}
