package tunnel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/connector/link"
)

// Target is where a deployment goes: its public name, and the upstream and the model
// there, or "" for what the connector decides.
type Target struct{ Name, Upstream, Model string }

// Resolve finds the upstream and the upstream's model id for a deployment. What
// the deployment names itself, upstream or model, wins; then the connector's
// routes, the first whose pattern matches the public name; then the only
// upstream of the connector, and the public name. Errors wrap [ErrNoRoute].
func (s *Session) Resolve(publicName, upstream, model string) (upstreamName, upstreamModel string, err error) {
	return resolve(s.connector.Name, s.offer.Load(), Target{publicName, upstream, model})
}

// resolve is [Session.Resolve] of a connector with this offer.
func resolve(connector string, offer *link.Update, to Target) (upstreamName, upstreamModel string, err error) {
	known, upstream := offer.Upstreams, to.Upstream
	if upstream != "" && !slices.Contains(known, upstream) {
		return "", "", fmt.Errorf("%w: deployment %q goes to upstream %q, but connector %q has %s; change the deployment's upstream or add it to the connector's configuration",
			ErrNoRoute, to.Name, upstream, connector, strings.Join(known, ", "))
	}
	for _, r := range offer.Routes {
		if (upstream == "" || upstream == r.Upstream) && scope.Match(r.Model, to.Name) {
			return r.Upstream, cmp.Or(to.Model, r.UpstreamModel, to.Name), nil
		}
	}
	if upstream == "" {
		if len(known) != 1 {
			return "", "", fmt.Errorf("%w: connector %q has several upstreams (%s) and no route for %q; set the deployment's upstream or add a route to the connector's configuration",
				ErrNoRoute, connector, strings.Join(known, ", "), to.Name)
		}
		upstream = known[0]
	}
	return upstream, cmp.Or(to.Model, to.Name), nil
}
