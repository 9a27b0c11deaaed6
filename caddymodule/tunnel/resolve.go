package tunnel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/connector/link"
)

// Target is the target of a deployment: its public name, its upstream and its model
// there. The connector decides about empty fields.
type Target struct{ Name, Upstream, Model string }

// Resolve returns the upstream and the upstream's model id for a deployment. The
// deployment's own upstream and model have precedence, then the first of the
// connector's routes whose pattern matches the public name, then the connector's
// only upstream and the public name. Errors wrap [ErrNoRoute].
func (s *Session) Resolve(publicName, upstream, model string) (upstreamName, upstreamModel string, err error) {
	return resolve(s.connector.Name, s.offer.Load(), Target{publicName, upstream, model})
}

// resolve is [Session.Resolve] for a connector with this offer.
func resolve(connector string, offer *link.Update, to Target) (upstreamName, upstreamModel string, err error) {
	known, upstream := offer.Upstreams, to.Upstream
	if upstream != "" && !slices.Contains(known, upstream) {
		return "", "", fmt.Errorf("%w: deployment %q uses upstream %q, but connector %q has %s; change the deployment's upstream or add it to the connector's configuration",
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
