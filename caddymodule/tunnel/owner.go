package tunnel

import (
	"cmp"
	"strings"
	"time"
)

// settleTime is how long a change of an owner may be new. All gateways notice it within this
// time, and requests that run have entered at the new owner.
const settleTime = time.Second

// Owner returns the gateway that owns what all gateways of a cluster must count together, ""
// if it is this one. It is one with a tunnel of the first connector that is online, so that
// most requests pass it anyway; without any, one of all gateways. It is settled if it has been
// the same for settleTime, and is not silent: other gateways may have noticed its end already.
func (h *Hub) Owner(connectorIDs []string, key string) (edge string, settled bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	since := time.Now().Add(-settleTime)
	var now, lately candidate        // the first of those with a tunnel, now or at any time since
	settled = !h.joined.After(since) // until then it may not know the tunnels of all peers
	consider := func(s *Session, at string) {
		usable := s.usable() // if not, it has ended and will depart soon
		c := candidateFor(key, at, !usable || s.arrived.After(since))
		lately.consider(c)
		if usable {
			now.consider(c)
		}
	}
	for _, id := range connectorIDs {
		if s := h.live[id]; s != nil && !s.away.Load() {
			consider(s, h.members.Name)
		}
		for _, s := range h.remote[id] {
			consider(s, s.at.name)
		}
		for _, edge := range h.departed[id] {
			lately.consider(candidateFor(key, edge, true))
		}
		if now.edge != "" {
			settled = settled && lately.edge == now.edge && !lately.changed
			break
		}
		settled = settled && lately.edge == ""
	}
	if now.edge == "" {
		now = candidateFor(key, h.members.Name, false)
		for name := range h.edges {
			now.consider(candidateFor(key, name, false))
		}
	}
	if now.edge == h.members.Name {
		now.edge = ""
	} else if e := h.edges[now.edge]; e != nil && e.silent() {
		settled = false
	}
	return now.edge, settled
}

// candidate is a gateway that may be an owner.
type candidate struct {
	edge    string
	rank    uint64
	changed bool // it had no tunnel for some time of settleTime
}

func candidateFor(key, edge string, changed bool) candidate {
	return candidate{edge, rankOf(key, edge), changed}
}

// consider makes c the one of both that comes first.
func (c *candidate) consider(other candidate) {
	order := cmp.Or(cmp.Compare(other.rank, c.rank), strings.Compare(other.edge, c.edge))
	switch {
	case c.edge == "" || order < 0:
		*c = other
	case order == 0:
		c.changed = c.changed && other.changed
	}
}

// rankOf returns the rank of a gateway in an order that differs between keys.
func rankOf(key, edge string) uint64 {
	const seed = 0xcbf29ce484222325 // of FNV-1a
	return rendezvous(edge, rendezvous(key, seed))
}

// depart notes that a tunnel takes no further requests, for settleTime. The caller holds the
// lock.
func (h *Hub) depart(s *Session) {
	if h.members.Name == "" {
		return // there is no cluster
	}
	id, edge := s.connector.ID, h.members.Name
	if s.at != nil {
		edge = s.at.name
	}
	h.departed[id] = append(h.departed[id], edge)
	time.AfterFunc(settleTime, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.departed[id] = h.departed[id][1:]; len(h.departed[id]) == 0 {
			delete(h.departed, id)
		}
	})
}
