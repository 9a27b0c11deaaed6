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
func (s *Session) Active() int { return int(max(s.active.Load(), s.activeThere.Load())) }

// beat records a ping. next is the time until the next one.
func (s *Session) beat(next time.Duration) {
	due := time.Now().Add(2*next + time.Second)
	s.pingDue.Store(&due)
}

// suspect reports whether the connector has missed two pings: it is probably dead,
// but not yet considered lost. So is one at a peer that has missed some itself.
func (s *Session) suspect() bool {
	if s.at != nil {
		return s.suspected.Load() || s.at.silent()
	}
	return time.Now().After(*s.pingDue.Load())
}

// maxSpread is how many requests more than the least busy connector one may have to which a
// request has an affinity.
const maxSpread = 1

// Choose returns the session for a request. The connector with the fewest requests has
// precedence, unless the target has an affinity to one that is hardly busier, and of its sessions
// the one at this gateway. Suspect sessions, and sessions with an upstream that was reported
// down, are chosen last: the report may be outdated. So are those in other regions, the nearest
// first. Choose does not wait.
func (h *Hub) Choose(connectorIDs []string, to Target, except []*Session) (*Session, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	best := h.choose(connectorIDs, to, except, choice{})
	if to.Affinity != 0 && len(connectorIDs) > 1 && best.session != nil {
		best = h.choose(connectorIDs, to, except, choice{affinity: to.Affinity, leastLoad: best.rank.load + maxSpread})
	}
	return best.session, best.session != nil
}

// choose considers all sessions. The caller holds the lock.
func (h *Hub) choose(connectorIDs []string, to Target, except []*Session, best choice) choice {
	known := h.options.Load().Known
	for _, id := range connectorIDs {
		local, remote := h.live[id], h.remote[id]
		load := 0
		if len(connectorIDs) > 1 {
			load = loadOf(local, remote)
		}
		if local != nil {
			best.consider(local, to, except, load)
		}
		for _, s := range remote {
			if known == nil || known(s.connector) { // its edge may not know yet that it was replaced
				best.consider(s, to, except, load)
			}
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

	affinity  uint64
	leastLoad int // smaller ones count as this one
}

// rank orders sessions; the smallest is the best.
type rank struct {
	doubtful bool
	away     time.Duration // to another region
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
	return cmp.Or(cmp.Compare(a.away, b.away), cmp.Compare(a.load, b.load),
		cmp.Compare(b.affinity, a.affinity), cmp.Compare(a.hops, b.hops))
}

func (c *choice) consider(s *Session, to Target, except []*Session, load int) {
	if !s.usable() || slices.Contains(except, s) {
		return
	}
	r := rank{doubtful: s.suspect() ||
		s.down(to), load: max(load, c.leastLoad), affinity: affinityTo(s.connector.ID, c.affinity)}
	if s.at != nil {
		r.hops, r.away = 1, s.at.away()
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
// with the names (rendezvous hashing): FNV-1a with the finalizer of MurmurHash3.
func rendezvous(name string, seed uint64) uint64 {
	h := seed
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// away returns the distance of a peer in another region, rounded up, 0 within the same region. The
// caller holds the hub's lock.
func (e *Edge) away() time.Duration {
	const unit = 10 * time.Millisecond
	if e.region == e.hub.members.Region {
		return 0
	}
	return (e.conn.RTT()/unit + 1) * unit
}

// WaitAny is [Hub.Choose], but waits up to d for one of the connectors to connect.
// It returns [ErrOffline] or the cause of ctx's end.
func (h *Hub) WaitAny(ctx context.Context, connectorIDs []string, to Target, except []*Session,
	d time.Duration) (*Session, error) {
	if s, ok := h.Choose(connectorIDs, to, except); ok {
		return s, nil
	}
	if d <= 0 {
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
		if s, ok := h.Choose(connectorIDs, to, except); ok { // may have connected before
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
	// Affinity is the same for requests that shall stay with one of several connectors; 0:
	// none.
	Affinity uint64
}

// Resolve returns the upstream and the upstream's model id for a deployment. The
// deployment's own upstream and model have precedence, then the first of the
// connector's routes whose pattern matches the public name, then the connector's
// only upstream and the public name. Errors wrap [ErrNoRoute].
func (s *Session) Resolve(publicName, upstream, model string) (upstreamName, upstreamModel string, err error) {
	to := Target{Name: publicName, Upstream: upstream, Model: model}
	return resolve(s.connector.Name, s.hello.Upstreams, s.hello.Routes, to)
}

// resolve is [Session.Resolve] for a connector with these upstreams and routes.
func resolve(
	connector string, known []string, routes []link.Route, to Target,
) (upstreamName, upstreamModel string, err error) {
	upstream := to.Upstream
	if upstream != "" && !slices.Contains(known, upstream) {
		return "", "", fmt.Errorf("%w: deployment %q uses upstream %q, but connector %q has %s; change the deployment's "+
			"upstream or add it to the connector's configuration",
			ErrNoRoute, to.Name, upstream, connector, strings.Join(known, ", "))
	}
	for _, r := range routes {
		if (upstream == "" || upstream == r.Upstream) && scope.Match(r.Model, to.Name) {
			return r.Upstream, cmp.Or(to.Model, r.UpstreamModel, to.Name), nil
		}
	}
	if upstream == "" {
		if len(known) != 1 {
			return "", "", fmt.Errorf("%w: connector %q has several upstreams (%s) and no route for %q; set the deployment's "+
				"upstream or add a route to the connector's configuration",
				ErrNoRoute, connector, strings.Join(known, ", "), to.Name)
		}
		upstream = known[0]
	}
	return upstream, cmp.Or(to.Model, to.Name), nil
}
