package tunnel

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/quic-go/quic-go"
)

// settleTime is how long a change of an owner may be new. All gateways notice it within this
// time, and requests that run have entered at the new owner.
const settleTime = time.Second

// Owner returns the gateway that owns what all gateways of a cluster must count together, ""
// if it is this one. It is one with a tunnel of the first connector that is online, so that
// most requests pass it anyway; without any, one of all gateways. It is not settled for
// settleTime after a change.
func (h *Hub) Owner(connectorIDs []string, key string) (edge string, settled bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	now := time.Now()
	edge = h.owner(connectorIDs, key, now, nil)
	settled = edge == h.owner(connectorIDs, key, now.Add(-settleTime), h.departed)
	if edge == h.members.Name {
		edge = ""
	}
	return edge, settled
}

// owner is Owner for the tunnels since before a time, and those that have departed. The caller
// holds the lock.
func (h *Hub) owner(connectorIDs []string, key string, before time.Time, departed map[string][]string) string {
	var first first
	for _, id := range connectorIDs {
		if s := h.live[id]; s != nil && s.usable() && !s.arrived.After(before) {
			first.consider(key, h.members.Name)
		}
		for _, s := range h.remote[id] {
			if s.usable() && !s.arrived.After(before) {
				first.consider(key, s.at.name)
			}
		}
		for _, edge := range departed[id] {
			first.consider(key, edge)
		}
		if first.edge != "" {
			return first.edge
		}
	}
	first.consider(key, h.members.Name)
	for name := range h.edges {
		first.consider(key, name)
	}
	return first.edge
}

// first is the first gateway of those that were considered.
type first struct {
	edge string
	rank [sha256.Size]byte
}

func (f *first) consider(key, edge string) {
	if rank := rankOf(key, edge); f.edge == "" || bytes.Compare(rank[:], f.rank[:]) < 0 {
		f.edge, f.rank = edge, rank
	}
}

// rankOf returns the place of a gateway in an order that differs between keys, and changes
// little with the gateways (rendezvous hashing).
func rankOf(key, edge string) [sha256.Size]byte {
	return sha256.Sum256([]byte(key + "\x00" + edge))
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

// Open opens a stream to a peer, for a request that the peer itself serves.
func (h *Hub) Open(edge string) (*quic.Stream, error) {
	h.mu.RLock()
	e := h.edges[edge]
	h.mu.RUnlock()
	if e == nil {
		return nil, fmt.Errorf("there is no connection of the gateway %s", edge)
	}
	return e.conn.OpenStream()
}
