package tunnel

import (
	"cmp"
	"fmt"
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

// Find returns a session of a connector that takes requests, other than those in except: the one of this gateway, else
// that of the nearest peer.
func (h *Hub) Find(connectorID string, except ...*Session) (*Session, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if s := h.live[connectorID]; s != nil && s.usable() && !slices.Contains(except, s) {
		return s, true
	}
	valid := h.options.Load().Valid
	best := (*Session)(nil)
	for _, s := range h.remote[connectorID] {
		if !s.usable() || slices.Contains(except, s) {
			continue
		}
		if valid != nil {
			if _, err := valid(s.connector); err != nil {
				continue // its edge may not know yet that the connector was removed
			}
		}
		if best == nil || s.peer.distance() < best.peer.distance() {
			best = s
		}
	}
	return best, best != nil
}

// distance returns the distance of a peer: of those that are not silent first those of this gateway's region. The
// caller holds the hub's lock.
func (p *PeerConn) distance() time.Duration {
	const silent = time.Hour
	d := p.conn.RTT()
	if p.region == p.hub.members.Region {
		d = 0
	}
	if p.silent() {
		d += silent
	}
	return d
}

// Target is the target of a deployment: its public name, its upstream and its model
// there. The connector decides about empty fields.
type Target struct {
	Name, Upstream, Model string
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
