package tunnel

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/postern-dev/postern/connector/link"
)

// legs is how many edges a connector has tunnels to: the loss of one does not matter.
const legs = 2

// Members are the gateways of a cluster.
type Members struct {
	Name, Region string // of this gateway
	Draining     bool   // connectors shall leave this gateway
	// Edges are those that take connectors, this one included.
	Edges []link.Edge
}

// edges returns the members for a connector: those of this gateway's region first, and
// otherwise in the order of Rank.
func (m Members) edges(connectorID string) link.Edges {
	elsewhere := func(e link.Edge) int {
		if e.Region == m.Region {
			return 0
		}
		return 1
	}
	list := slices.Clone(m.Edges)
	slices.SortFunc(list, func(a, b link.Edge) int {
		order := cmp.Compare(Rank(connectorID, a.Name), Rank(connectorID, b.Name))
		return cmp.Or(cmp.Compare(elsewhere(a), elsewhere(b)), order)
	})
	return link.Edges{Edge: m.Name, Legs: legs, List: list[:min(len(list), link.MaxEdges)]}
}

// membership is what a session's connector knows about the members.
type membership struct {
	mu    sync.Mutex
	sent  link.Edges // without an edge before the welcome
	drain bool       // a drain was sent
}

// sendWelcome adds the members to a welcome and sends that.
func (s *Session) sendWelcome(w link.Welcome) {
	members := s.hub.options.Load().Members
	if members == nil {
		s.send(w)
		return
	}
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	m := members()
	w.Edges = m.edges(s.connector.ID)
	s.members.sent = w.Edges
	s.send(w)
	s.drainFor(m)
}

// drainFor asks the connector to leave, once, if this gateway drains. The caller holds the
// lock of the membership.
func (s *Session) drainFor(m Members) {
	if m.Draining && !s.members.drain {
		s.log().Info("asking the connector to leave, as this edge drains")
		s.send(link.Drain{})
	}
	s.members.drain = m.Draining
}

// onMembers sends the members if they differ from those that the connector knows.
func (s *Session) onMembers(members func() Members) {
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	if s.members.sent.Edge == "" {
		return // the welcome will have them
	}
	m := members() // now: another call may have sent later ones
	if next := m.edges(s.connector.ID); !reflect.DeepEqual(next, s.members.sent) {
		s.members.sent = next
		s.send(next)
	}
	s.drainFor(m)
}

// membersAtOnce bounds the connectors that the members are sent to at a time.
const membersAtOnce = 64

// MembersChanged sends the connectors the members of the cluster, if they differ from those
// at the last call. It does not wait.
func (h *Hub) MembersChanged() {
	members := h.options.Load().Members
	if members == nil {
		return
	}
	h.changing.Lock()
	defer h.changing.Unlock()
	now := members()
	h.mu.Lock()
	defer h.mu.Unlock()
	if reflect.DeepEqual(now, h.members) {
		return
	}
	h.members = now
	go h.sendMembers(slices.Collect(maps.Values(h.live)), members)
}

// sendMembers calls onMembers of the sessions, which wait for connectors that do not read.
func (h *Hub) sendMembers(sessions []*Session, members func() Members) {
	var sending errgroup.Group
	sending.SetLimit(membersAtOnce)
	for _, s := range sessions {
		sending.Go(func() error {
			return h.contain("sending a connector the gateways", func() error { s.onMembers(members); return nil })
		})
	}
}

// holds reports whether a hello must not replace the tunnel of its connector: it comes from
// the same process, which has led it to this edge by mistake.
func (h *Hub) holds(hello link.Hello) bool {
	members := h.options.Load().Members
	if members == nil || !slices.Contains(hello.Held, members().Name) {
		return false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	s := h.live[hello.Connector]
	return s != nil && s.hello.Instance == hello.Instance
}
