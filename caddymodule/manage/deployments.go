package manage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// Deployment is a deployment as it is listed.
type Deployment struct {
	store.Deployment
	// ConnectorName is for people; Connector is the id.
	ConnectorName string `json:"connector_name"`
	// State is that of the connector.
	State string `json:"state"`
	// Warning says why requests would fail now, if that can be seen. It does
	// not make the operation fail: a connector may be configured later.
	Warning string `json:"warning,omitempty"`
}

// SetDeployment asks to register or re-register a public model name.
type SetDeployment struct {
	Account   string
	Name      string // required
	Connector string // id or name, required
	Upstream  string // "" lets the connector's routes decide
	Model     string // "" likewise, and else the public name
}

// SetDeployment registers a deployment or gives it a new way: requests that
// start later take it, running ones finish on the old one.
func (s *Service) SetDeployment(ctx context.Context, d SetDeployment) (Deployment, error) {
	account, err := s.account(ctx, d.Account)
	if err != nil {
		return Deployment{}, err
	}
	con, err := s.connector(account, d.Connector)
	if err != nil {
		return Deployment{}, err
	}
	record, err := s.store.SetDeployment(ctx, store.Deployment{
		Account: account, Name: d.Name, Connector: con.ID, Upstream: d.Upstream, Model: d.Model,
	})
	if err != nil {
		return Deployment{}, err
	}
	s.audit(ctx, "deployment.set", account, record.Name, record.Name, "connector", con.ID)
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
	if c, ok := s.store.Connector(d.Connector); ok {
		v.ConnectorName = c.Name
	}
	info, online := live[d.Connector]
	if !online {
		return v
	}
	v.State = Online
	if d.Upstream != "" && !slices.Contains(info.Upstreams, d.Upstream) {
		v.Warning = fmt.Sprintf("connector %q has no upstream %q; it has: %s", v.ConnectorName, d.Upstream, strings.Join(info.Upstreams, ", "))
	}
	return v
}
