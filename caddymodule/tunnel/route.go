package tunnel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

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
	connector string, upstreams []string, routes []link.Route, target Target,
) (upstreamName, upstreamModel string, err error) {
	upstream := target.Upstream
	if upstream != "" && !slices.Contains(upstreams, upstream) {
		return "", "", fmt.Errorf("%w: deployment %q uses upstream %q, but connector %q has %s; change the deployment's "+
			"upstream or add it to the connector's configuration",
			ErrNoRoute, target.Name, upstream, connector, strings.Join(upstreams, ", "))
	}
	for _, r := range routes {
		if (upstream == "" || upstream == r.Upstream) && scope.Match(r.Model, target.Name) {
			return r.Upstream, cmp.Or(target.Model, r.UpstreamModel, target.Name), nil
		}
	}
	if upstream == "" {
		if len(upstreams) != 1 {
			return "", "", fmt.Errorf("%w: connector %q has several upstreams (%s) and no route for %q; set the deployment's "+
				"upstream or add a route to the connector's configuration",
				ErrNoRoute, connector, strings.Join(upstreams, ", "), target.Name)
		}
		upstream = upstreams[0]
	}
	return upstream, cmp.Or(target.Model, target.Name), nil
}

// DeploymentRoute is the route of a deployment through one connector, and its state.
type DeploymentRoute struct {
	State    health.State
	Upstream string
	Model    string
	Problem  error // why the route has no upstream; wraps [ErrNoRoute]
	// Window is the context window of the model in tokens, as its server reports it; 0: unknown.
	Window int
	Strict bool // see [link.UpstreamReport]
	// Status is "loading" or "unloaded" if a router has not loaded the model, else "".
	Status   string
	OneModel bool // the server loads one model at a time
	// Since is when the tunnel began, or when its model server was reachable again.
	Since time.Time
}

// DeploymentRoute returns the route of a deployment through the connector's tunnel.
func (i Info) DeploymentRoute(target Target) DeploymentRoute {
	upstream, model, err := resolve(i.Name, i.Upstreams, i.Routes, target)
	var state UpstreamState
	for _, u := range i.States {
		if u.Name == upstream {
			state = u
		}
	}
	return state.route(i.Since, upstream, model, err)
}

// route returns the route of a deployment to an upstream in this state, over a tunnel that began at since.
func (u UpstreamState) route(since time.Time, upstream, model string, err error) DeploymentRoute {
	if u.Since.After(since) {
		since = u.Since
	}
	return DeploymentRoute{
		State:    health.RouteState(err == nil, u.Server, model),
		Upstream: upstream, Model: model, Problem: err, Window: u.Window(model), Strict: u.Strict,
		Status: u.Loading(model), OneModel: u.OneModel, Since: since,
	}
}

// Route returns the route of a deployment through a connector. ok is false if the connector is offline. It allocates
// nothing, unless the connector has no upstream for the deployment.
func (h *Hub) Route(connectorID string, target Target) (r DeploymentRoute, ok bool) {
	h.mu.RLock()
	s := h.live[connectorID]
	h.mu.RUnlock()
	if s == nil {
		return r, false
	}
	return s.route(target), true
}

// route returns the route of a deployment through the session.
func (s *Session) route(target Target) DeploymentRoute {
	upstream, model, err := s.Resolve(target.Name, target.Upstream, target.Model)
	return s.state(upstream).route(s.since, upstream, model, err)
}

// Recheck reports whether the model server of a route does not list the route's model. The connector is then asked to
// list the models again. Recheck allocates nothing if the model is listed.
func (h *Hub) Recheck(connectorID string, target Target) (missing bool) {
	s, ok := h.Session(connectorID)
	if !ok {
		return false
	}
	route := s.route(target)
	if route.State != health.ModelMissing {
		return false
	}
	if s.rechecking.CompareAndSwap(false, true) { // the connector bounds how often it asks
		upstream := route.Upstream // the goroutine would move the whole route to the heap
		go func() {
			defer panics.Recover(s.log(), "asking a connector for its models")
			defer s.rechecking.Store(false)
			s.send(link.Recheck{Upstream: upstream})
		}()
	}
	return true
}
