package tunnel

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/wait"
)

// Members are the gateways of a cluster.
type Members struct {
	Name string // of this gateway
	// Edges are the gateways that take connectors. A connector keeps a tunnel to each of them.
	Edges []link.Edge
}

// edges returns the members for connectors.
func (m Members) edges() link.Edges {
	return link.Edges{Edge: m.Name, List: m.Edges[:min(len(m.Edges), link.MaxEdges)]}
}

// Excess returns the names of the edges that connectors do not dial, as the cluster has too many.
func (m Members) Excess() (names []string) {
	for _, e := range m.Edges[min(len(m.Edges), link.MaxEdges):] {
		names = append(names, e.Name)
	}
	return names
}

// membership is what was sent to a session's connector about the members.
type membership struct {
	mu   sync.Mutex
	sent link.Edges // the zero value before the welcome
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
	w.Edges = members().edges()
	s.members.sent = w.Edges
	s.send(w)
}

// sendMembers sends the members if they differ from those that were sent last.
func (s *Session) sendMembers(members func() Members) {
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	if s.members.sent.Edge == "" {
		return // the welcome will contain them
	}
	next := members().edges() // with the lock, so that they are not older than those of another call
	if !reflect.DeepEqual(next, s.members.sent) {
		s.members.sent = next
		s.send(next)
	}
}

const (
	// maxMembersSends bounds the connectors that are sent the members at a time.
	maxMembersSends = 64
	// membersPause is the pause between two groups of so many connectors. All edges send in the same order, so an
	// edge that has started gets some 2,000 tunnels in a second.
	membersPause = 32 * time.Millisecond
)

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
	inOrder(sessions)
	var sending errgroup.Group
	sending.SetLimit(maxMembersSends)
	for i, s := range sessions {
		if i > 0 && i%maxMembersSends == 0 && wait.For(h.closing, membersPause) != nil {
			return
		}
		sending.Go(func() error {
			return h.contain("sending a connector the gateways", func() error { s.sendMembers(members); return nil })
		})
	}
}

// inOrder sorts sessions by the ids of their connectors: the order is the same at all edges.
func inOrder(sessions []*Session) {
	slices.SortFunc(sessions, func(a, b *Session) int { return strings.Compare(a.connector.ID, b.connector.ID) })
}

// isMisdirected reports whether a load balancer has sent a hello to an edge where its process already has a tunnel.
// Such a hello must not replace the tunnel.
func (h *Hub) isMisdirected(hello link.Hello) bool {
	members := h.options.Load().Members
	if members == nil || !slices.Contains(hello.OtherEdges, members().Name) {
		return false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	s := h.live[hello.Connector]
	return s != nil && s.hello.Instance == hello.Instance
}
