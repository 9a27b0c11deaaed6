package tunnel

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/postern-dev/postern/caddymodule/turns"
	"github.com/postern-dev/postern/connector/link"
)

// edgesPerConnector is how many edges a connector has tunnels to: it may lose one.
const edgesPerConnector = 2

// Members are the gateways of a cluster.
type Members struct {
	Name, Region string // of this gateway
	Draining     bool   // connectors should leave this gateway
	// Edges are the gateways that take connectors, including this one.
	Edges []link.Edge
}

// edges returns the members for a connector: first the edges in the region of this gateway, each
// region in the order of rankOf.
func (m Members) edges(connectorID string) link.Edges {
	elsewhere := func(e link.Edge) int {
		if e.Region == m.Region {
			return 0
		}
		return 1
	}
	list := slices.Clone(m.Edges)
	slices.SortFunc(list, func(a, b link.Edge) int {
		order := cmp.Compare(rankOf(connectorID, a.Name), rankOf(connectorID, b.Name))
		return cmp.Or(cmp.Compare(elsewhere(a), elsewhere(b)), order)
	})
	return link.Edges{Edge: m.Name, Legs: edgesPerConnector, List: list[:min(len(list), link.MaxEdges)]}
}

// rankOf returns the rank of a gateway in an order that differs between connectors.
func rankOf(connectorID, edge string) uint64 {
	const seed = 0xcbf29ce484222325 // of FNV-1a
	return turns.Rendezvous(edge, turns.Rendezvous(connectorID, seed))
}

// membership is what was sent to a session's connector about the members.
type membership struct {
	mu    sync.Mutex
	sent  link.Edges // the zero value before the welcome
	drain bool       // a drain was sent
}

// sendWelcome sends a welcome with the members of the cluster.
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
	s.sendDrain(m)
}

// sendDrain asks the connector to leave, once, if this gateway drains. The caller holds the
// lock of the membership.
func (s *Session) sendDrain(m Members) {
	if m.Draining && !s.members.drain {
		s.log().Info("asking the connector to leave, as this edge drains")
		s.send(link.Drain{})
	}
	s.members.drain = m.Draining
}

// sendMembers sends the members if they differ from those that were sent last.
func (s *Session) sendMembers(members func() Members) {
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	if s.members.sent.Edge == "" {
		return // the welcome will contain them
	}
	m := members() // with the lock, so that they are not older than those of another call
	if next := m.edges(s.connector.ID); !reflect.DeepEqual(next, s.members.sent) {
		s.members.sent = next
		s.send(next)
	}
	s.sendDrain(m)
}

// maxMembersSends bounds the connectors that are sent the members at a time.
const maxMembersSends = 64

// MembersChanged sends the members of the cluster to the connectors, if they differ from those
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

// sendMembers sends the members on all sessions. A connector that does not read delays its own
// send alone.
func (h *Hub) sendMembers(sessions []*Session, members func() Members) {
	var sending errgroup.Group
	sending.SetLimit(maxMembersSends)
	for _, s := range sessions {
		sending.Go(func() error {
			return h.contain("sending a connector the gateways", func() error { s.sendMembers(members); return nil })
		})
	}
}

// misled reports whether a load balancer has led a hello to an edge where its process has a tunnel
// already. Such a hello must not replace the tunnel.
func (h *Hub) misled(hello link.Hello) bool {
	members := h.options.Load().Members
	if members == nil || !slices.Contains(hello.OtherEdges, members().Name) {
		return false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	s := h.live[hello.Connector]
	return s != nil && s.hello.Instance == hello.Instance
}
