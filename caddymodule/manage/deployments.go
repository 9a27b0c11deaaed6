package manage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// Deployment is a deployment as it is listed.
type Deployment struct {
	store.Deployment
	// Through are its connectors, in the order of Connectors.
	Through []Leg `json:"through"`
	// State is online if any of its connectors is.
	State string `json:"state"`
	// Warning says why requests would fail now, or some of its connectors are of
	// no use to it, if that can be seen. It does not make the operation fail: a
	// connector may be configured later.
	Warning string `json:"warning,omitempty"`
}

// Leg is one of the connectors of a deployment, or what a device may replace.
type Leg struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
}

// ConnectorNames are the names of its connectors, for people.
func (d Deployment) ConnectorNames() []string {
	names := make([]string, len(d.Through))
	for i, l := range d.Through {
		names[i] = l.Name
	}
	return names
}

// SetDeployment asks to register or re-register a public model name.
type SetDeployment struct {
	Account    string
	Name       string   // required
	Connectors []string // ids or names, at least one
	Upstream   string   // "" lets the connector's routes decide
	Model      string   // "" likewise, and else the public name
	// MaxConcurrency is how many requests may run at a time; 0: any number.
	MaxConcurrency int
	// Options say how the model server is to be treated.
	Options compat.Options
}

// SetDeployment registers a deployment or gives it a new way: requests that
// start later take it, running ones finish on the old one.
func (s *Service) SetDeployment(ctx context.Context, d SetDeployment) (Deployment, error) {
	account, err := s.account(ctx, d.Account)
	if err != nil {
		return Deployment{}, err
	}
	ids := make([]string, len(d.Connectors))
	for i, idOrName := range d.Connectors {
		con, err := s.connector(account, idOrName)
		if err != nil {
			return Deployment{}, err
		}
		ids[i] = con.ID
	}
	record, err := s.store.SetDeployment(ctx, store.Deployment{
		Account: account, Name: d.Name, Connectors: ids, Upstream: d.Upstream, Model: d.Model, MaxConcurrency: d.MaxConcurrency,
		Options: d.Options,
	})
	if err != nil {
		return Deployment{}, err
	}
	s.audit(ctx, "deployment.set", account, record.Name, record.Name, "connectors", record.Connectors)
	return s.deploymentOf(record, s.sessions()), nil
}

// Deployments lists the deployments of an account by name.
func (s *Service) Deployments(account string) ([]Deployment, error) {
	account, err := s.known(account)
	if err != nil {
		return nil, err
	}
	live := s.sessions()
	records := s.store.Deployments(account)
	deployments := make([]Deployment, 0, len(records))
	for _, d := range records {
		deployments = append(deployments, s.deploymentOf(d, live))
	}
	return deployments, nil
}

// MatchScope lists the names of the deployments that a scope allows now.
func (s *Service) MatchScope(account, text string) ([]string, error) {
	account, err := s.known(account)
	if err != nil {
		return nil, err
	}
	allowed, err := scope.Parse(text)
	if err != nil {
		return nil, faultf(store.ErrInvalid, "%v", err)
	}
	names := []string{}
	for _, d := range s.store.Deployments(account) {
		if allowed.Allows(d.Name) {
			names = append(names, d.Name)
		}
	}
	return names, nil
}

// RemoveDeployment removes a deployment: later requests for it fail, running
// ones finish.
func (s *Service) RemoveDeployment(ctx context.Context, account, name string) (Deployment, error) {
	account, err := s.account(ctx, account)
	if err != nil {
		return Deployment{}, err
	}
	d, err := s.store.RemoveDeployment(ctx, account, name)
	if err != nil {
		return Deployment{}, err
	}
	s.audit(ctx, "deployment.remove", account, d.Name, d.Name)
	removed := s.deploymentOf(d, s.sessions())
	removed.Warning = ""
	return removed, nil
}

func (s *Service) deploymentOf(d store.Deployment, live map[string]tunnel.Info) Deployment {
	v := Deployment{Deployment: d, State: Offline}
	for _, id := range d.Connectors {
		l := Leg{ID: id, State: Offline}
		if c, ok := s.store.Connector(id); ok {
			l.Name = c.Name
		}
		if info, online := live[id]; online {
			v.State, l.State = Online, Online
			if v.Warning == "" && d.Upstream != "" && !slices.Contains(info.Upstreams, d.Upstream) {
				v.Warning = fmt.Sprintf("connector %q has no upstream %q; it has: %s", l.Name, d.Upstream, strings.Join(info.Upstreams, ", "))
			}
		}
		v.Through = append(v.Through, l)
	}
	return v
}
