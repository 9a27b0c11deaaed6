package tunnel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/scope"
)

// Resolve finds the upstream and the upstream's model id for a deployment. What
// the deployment says itself, upstream or model, wins; then the connector's
// routes, the first whose pattern matches the public name; then the only
// upstream of the connector, and the public name. Errors wrap [ErrNoRoute].
func (s *Session) Resolve(publicName, upstream, model string) (upstreamName, upstreamModel string, err error) {
	offer := s.offer.Load()
	known := offer.Upstreams
	if upstream != "" && !slices.Contains(known, upstream) {
		return "", "", fmt.Errorf("%w: deployment %q goes to upstream %q, but connector %q has %s; change the deployment's upstream or add it to the connector's configuration",
			ErrNoRoute, publicName, upstream, s.connector.Name, strings.Join(known, ", "))
	}
	for _, r := range offer.Routes {
		if (upstream == "" || upstream == r.Upstream) && scope.Match(r.Model, publicName) {
			return r.Upstream, cmp.Or(model, r.UpstreamModel, publicName), nil
		}
	}
	if upstream == "" {
		if len(known) != 1 {
			return "", "", fmt.Errorf("%w: connector %q has several upstreams (%s) and no route for %q; set the deployment's upstream or add a route to the connector's configuration",
				ErrNoRoute, s.connector.Name, strings.Join(known, ", "), publicName)
		}
		upstream = known[0]
	}
	return upstream, cmp.Or(model, publicName), nil
}
