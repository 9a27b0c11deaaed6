package manage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/scope"
)

const (
	offersWait = 10 * time.Second // for all connectors together
	maxOffers  = 1000
)

// ErrIncomplete is wrapped by the error of [Service.Offers] when some upstreams
// did not say which models they have; the offers of the others are there.
var ErrIncomplete = errors.New("incomplete")

// Offer is a model that a connector has and no deployment leads to.
type Offer struct {
	Connector     string `json:"connector"` // id
	ConnectorName string `json:"connector_name"`
	Upstream      string `json:"upstream"`
	Model         string `json:"model"`
	// Name is a public name for it that is free.
	Name string `json:"name"`
}

// Offers lists the models of the account's online connectors that no deployment
// leads to yet, at most 1,000. What an upstream said within the last seconds is
// not asked again.
func (s *Service) Offers(ctx context.Context, account string) ([]Offer, error) {
	account, err := s.account(ctx, account)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, offersWait)
	defer cancel()
	var lists []*modelList
	live := s.sessions()
	for _, c := range s.store.Connectors(account) {
		if info, online := live[c.ID]; online {
			lists = append(lists, s.listsOf(c.Name, info)...)
		}
	}
	lists = s.models.fetch(ctx, lists, false)
	offers := s.offersOf(account, lists)
	return offers, incomplete(ctx, lists)
}

// way is where a model is.
type way struct{ connector, upstream, model string }

// offersOf makes offers of the models that no deployment leads to.
func (s *Service) offersOf(account string, lists []*modelList) []Offer {
	tunnels := make(map[string]Tunnel)
	for _, l := range lists {
		tunnels[l.id] = l.tunnel
	}
	taken, led := make(map[string]bool), make(map[way]bool)
	for _, d := range s.store.Deployments(account) {
		taken[d.Name] = true
		for _, id := range d.Connectors {
			t := tunnels[id]
			if t == nil {
				continue
			}
			if upstream, model, err := t.Resolve(d.Name, d.Upstream, d.Model); err == nil {
				led[way{id, upstream, model}] = true
			}
		}
	}
	offers := []Offer{}
	for _, l := range lists {
		for _, model := range l.models {
			if led[way{l.id, l.upstream, model}] {
				continue
			}
			if len(offers) == maxOffers {
				return offers
			}
			name := freeName(taken, model, l.connector)
			taken[name] = true
			offers = append(offers, Offer{Connector: l.id, ConnectorName: l.connector, Upstream: l.upstream, Model: model, Name: name})
		}
	}
	return offers
}

// incomplete says why offers may be missing, if that is so.
func incomplete(ctx context.Context, lists []*modelList) error {
	var first *modelList
	failed := 0
	for _, l := range lists {
		if l.err == nil {
			continue
		}
		failed++
		if first == nil {
			first = l
		}
	}
	switch {
	case failed == 0:
		return nil
	case ctx.Err() != nil:
		return faultf(ErrIncomplete, "not all connectors have said yet which models they have")
	}
	text := fmt.Sprintf("upstream %q of connector %q did not say which models it has: %v", first.upstream, first.connector, first.err)
	if failed > 1 {
		text += fmt.Sprintf(" (and %d more)", failed-1)
	}
	return faultf(ErrIncomplete, "%s", text)
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

// publicName makes a deployment's name of a model's. Where the model is called
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
