package manage

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

const maxOffers = 1000

// Offer is a model that a connector has and no deployment leads to.
type Offer struct {
	Connector     string `json:"connector"` // id
	ConnectorName string `json:"connector_name"`
	Upstream      string `json:"upstream"`
	Model         string `json:"model"`
	// Name is a public name for it that is free.
	Name string `json:"name"`
}

// Offers lists the models that the account's online connectors have reported and no
// deployment leads to yet, at most 1,000. No model server is asked; missing is why the
// models of some are not known, "" if all are.
func (s *Service) Offers(ctx context.Context) (offers []Offer, missing string, err error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, "", err
	}
	live := s.sessions()
	taken, led := s.led(account, live)
	offers = []Offer{}
	gaps := 0
	for _, c := range s.store.Connectors(account) {
		for _, u := range live[c.ID].States {
			if gap := gapOf(c.Name, u); gap != "" {
				missing = cmp.Or(missing, gap)
				gaps++
			}
			for _, model := range u.Models {
				to := way{c.ID, u.Name, health.Canonical(model)}
				if led[to] || len(offers) == maxOffers {
					continue
				}
				led[to] = true
				name := freeName(taken, model, c.Name)
				taken[name] = true
				offers = append(offers, Offer{Connector: c.ID, ConnectorName: c.Name, Upstream: u.Name, Model: model, Name: name})
			}
		}
	}
	if gaps > 1 {
		missing += fmt.Sprintf(" (and %d more)", gaps-1)
	}
	return offers, missing, nil
}

// way is where a model is.
type way struct{ connector, upstream, model string }

// led returns the names of the account's deployments, and where they lead.
func (s *Service) led(account string, live map[string]tunnel.Info) (taken map[string]bool, led map[way]bool) {
	taken, led = make(map[string]bool), make(map[way]bool)
	for _, d := range s.store.Deployments(account) {
		taken[d.Name] = true
		for _, id := range d.Connectors {
			if info, online := live[id]; online {
				if to := info.Way(tunnel.Target{Name: d.Name, Upstream: d.Upstream, Model: d.Model}); to.Problem == nil {
					led[way{id, to.Upstream, health.Canonical(to.Model)}] = true
				}
			}
		}
	}
	return taken, led
}

// gapOf returns why the models of an upstream are not offered, "" if they are.
func gapOf(connector string, u tunnel.UpstreamState) string {
	switch {
	case !u.Known:
		return fmt.Sprintf("connector %q has not reported yet which models its model server %q has", connector, u.Name)
	case u.Down():
		return fmt.Sprintf("connector %q cannot reach its model server %q", connector, u.Name)
	case u.Models == nil:
		return fmt.Sprintf("model server %q of connector %q does not list its models", u.Name, connector)
	default:
		return ""
	}
}

// freeName finds a public name for a model that is not taken: the model's own,
// one with the name of its connector, or one with a number.
func freeName(taken map[string]bool, model, connector string) string {
	name := publicName(model)
	if !taken[name] {
		return name
	}
	name = publicName(cut(name, scope.MaxName-40) + "-" + cut(connector, 32))
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", cut(publicName(model), scope.MaxName-8), n)
	}
	return name
}

// publicName returns a deployment's name for a model's. Where the model is called
// by its file, it is the name of the file.
func publicName(model string) string {
	if strings.HasPrefix(model, "/") {
		model = path.Base(model)
	}
	model = strings.TrimSuffix(model, ".gguf")
	name := strings.Map(func(r rune) rune {
		if scope.CheckName(string(r)) != nil {
			return '-'
		}
		return r
	}, cut(model, scope.MaxName))
	if name = strings.Trim(name, "-/"); name == "" {
		return "model"
	}
	return name
}

// cut returns at most n bytes of s.
func cut(s string, n int) string { return s[:min(len(s), n)] }
