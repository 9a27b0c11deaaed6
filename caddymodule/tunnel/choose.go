package tunnel

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/connector/link"
)

// Connector returns the id of the session's connector.
func (s *Session) Connector() string { return s.connector.ID }

// Active returns the number of running requests.
func (s *Session) Active() int { return int(max(s.active.Load(), s.peerActive.Load())) }

// maxSpread is how many more requests than the least busy connector may run at a connector that is
// chosen by affinity.
const maxSpread = 1

// Choose returns the best session for a request. It compares sessions by these criteria, in this
// order: its peer is not silent, and its upstream was not reported down; its connector is the first of
// connectorIDs, if the target is InOrder; its region is near; its connector has few requests; the target
// has an affinity to its connector, within maxSpread; it is at this gateway. Choose does not wait.
func (h *Hub) Choose(connectorIDs []string, target Target, except []*Session) (*Session, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	best := h.choose(connectorIDs, target, except, choice{})
	if target.Affinity != 0 && len(connectorIDs) > 1 && best.session != nil {
		best = h.choose(connectorIDs, target, except,
			choice{affinity: target.Affinity, minLoad: best.rank.load + maxSpread})
	}
	return best.session, best.session != nil
}

// choose considers all sessions. The caller holds the lock.
func (h *Hub) choose(connectorIDs []string, target Target, except []*Session, best choice) choice {
	valid := h.options.Load().Valid
	for i, id := range connectorIDs {
		local, remote := h.live[id], h.remote[id]
		var r rank
		if len(connectorIDs) > 1 {
			r.load = loadOf(local, remote)
		}
		if target.InOrder {
			r.position = i
		}
		if local != nil {
			best.consider(local, target, except, r)
		}
		for _, s := range remote {
			if valid != nil {
				if _, err := valid(s.connector); err != nil {
					continue // its edge may not know yet that the connector was removed
				}
			}
			best.consider(s, target, except, r)
		}
	}
	return best
}

// loadOf returns the number of requests of a connector that has these sessions.
func loadOf(local *Session, remote []*Session) (n int) {
	if local != nil {
		n = local.Active()
	}
	for _, s := range remote {
		n += s.Active()
	}
	return n
}

// choice is the best session of those that were considered, at random among equals.
type choice struct {
	session *Session
	rank    rank
	equal   int

	affinity uint64
	minLoad  int // smaller loads count as this one
}

// rank orders sessions; the smallest is the best.
type rank struct {
	doubtful bool
	position int           // of the connector, if the order counts
	distance time.Duration // to another region
	load     int
	affinity uint64 // to the connector; the largest is the best
	hops     int
}

func (a rank) compare(b rank) int {
	if a.doubtful != b.doubtful {
		if a.doubtful {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.distance, b.distance), cmp.Compare(a.load, b.load),
		cmp.Compare(b.affinity, a.affinity), cmp.Compare(a.hops, b.hops))
}

// consider considers a session of a connector with the load and the position of r.
func (c *choice) consider(s *Session, target Target, except []*Session, r rank) {
	if !s.usable() || slices.Contains(except, s) {
		return
	}
	r.doubtful = s.down(target)
	r.load = max(r.load, c.minLoad)
	r.affinity = affinityTo(s.connector.ID, c.affinity)
	if s.peer != nil {
		r.hops, r.distance = 1, s.peer.distance()
		r.doubtful = r.doubtful || s.peer.silent()
	}
	order := -1
	if c.session != nil {
		order = r.compare(c.rank)
	}
	switch {
	case order < 0:
		c.session, c.rank, c.equal = s, r, 1
	case order == 0:
		if c.equal++; rand.IntN(c.equal) == 0 {
			c.session = s
		}
	}
}

// affinityTo returns the rank of a connector for requests with this affinity, 0 without one.
func affinityTo(connectorID string, affinity uint64) uint64 {
	if affinity == 0 {
		return 0
	}
	return rendezvous(connectorID, affinity)
}

// Rank returns the rank of a gateway in an order that differs between keys.
func Rank(key, edge string) uint64 {
	const seed = 0xcbf29ce484222325 // of FNV-1a
	return rendezvous(edge, rendezvous(key, seed))
}

// rendezvous returns the rank of a name in an order that differs between seeds, and changes little
// if names come or go (rendezvous hashing): FNV-1a with the finalizer of MurmurHash3.
func rendezvous(name string, seed uint64) uint64 {
	h := seed
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// distance returns the distance of a peer in another region, rounded up, 0 within the same region. The
// caller holds the hub's lock.
func (p *PeerConn) distance() time.Duration {
	const unit = 10 * time.Millisecond
	if p.region == p.hub.members.Region {
		return 0
	}
	return (p.conn.RTT()/unit + 1) * unit
}

// WaitAny is [Hub.Choose], but waits for one of the connectors to connect, until d after the last of them was lost.
// It returns [ErrOffline] or the cause of ctx's end.
func (h *Hub) WaitAny(ctx context.Context, connectorIDs []string, target Target, except []*Session,
	d time.Duration,
) (*Session, error) {
	if s, ok := h.Choose(connectorIDs, target, except); ok {
		return s, nil
	}
	if d = time.Until(h.lastOnline(connectorIDs).Add(d)); d <= 0 {
		return nil, ErrOffline
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	arrived := make(chan struct{}, 1) // receives a value when one of them connects
	h.mu.Lock()
	h.arrivals[arrived] = connectorIDs
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.arrivals, arrived)
	}()
	for {
		if s, ok := h.Choose(connectorIDs, target, except); ok { // may have connected before
			return s, nil
		}
		select {
		case <-arrived:
		case <-timer.C:
			return nil, ErrOffline
		case <-h.closing.Done():
			return nil, ErrOffline
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Target is the target of a deployment: its public name, its upstream and its model
// there. The connector decides about empty fields.
type Target struct {
	Name, Upstream, Model string
	// Affinity is equal for requests that should stay with one of several connectors; 0:
	// none.
	Affinity uint64
	// InOrder means that an earlier connector is better than a later one.
	InOrder bool
}

// Resolve returns the upstream and the upstream's model id for a deployment. The
// deployment's own upstream and model have precedence, then the first of the
// connector's routes whose pattern matches the public name, then the connector's
// only upstream and the public name. Errors wrap [ErrNoRoute].
func (s *Session) Resolve(publicName, upstream, model string) (upstreamName, upstreamModel string, err error) {
	target := Target{Name: publicName, Upstream: upstream, Model: model}
	return resolve(s.connector.Name, s.hello.Upstreams, s.hello.Routes, target)
}

// resolve is [Session.Resolve] for a connector with these upstreams and routes.
func resolve(
	connector string, known []string, routes []link.Route, target Target,
) (upstreamName, upstreamModel string, err error) {
	upstream := target.Upstream
	if upstream != "" && !slices.Contains(known, upstream) {
		return "", "", fmt.Errorf("%w: deployment %q uses upstream %q, but connector %q has %s; change the deployment's "+
			"upstream or add it to the connector's configuration",
			ErrNoRoute, target.Name, upstream, connector, strings.Join(known, ", "))
	}
	for _, r := range routes {
		if (upstream == "" || upstream == r.Upstream) && scope.Match(r.Model, target.Name) {
			return r.Upstream, cmp.Or(target.Model, r.UpstreamModel, target.Name), nil
		}
	}
	if upstream == "" {
		if len(known) != 1 {
			return "", "", fmt.Errorf("%w: connector %q has several upstreams (%s) and no route for %q; set the deployment's "+
				"upstream or add a route to the connector's configuration",
				ErrNoRoute, connector, strings.Join(known, ", "), target.Name)
		}
		upstream = known[0]
	}
	return upstream, cmp.Or(target.Model, target.Name), nil
}
