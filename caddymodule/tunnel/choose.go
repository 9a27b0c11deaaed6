package tunnel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/connector/link"
)

// Connector returns the id of the session's connector.
func (s *Session) Connector() string { return s.connector.ID }

// Active returns the number of running requests.
func (s *Session) Active() int { return int(s.active.Load()) }

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
