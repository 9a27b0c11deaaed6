package manage

import (
	"context"
	"slices"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// Status is the state of the gateway: of all accounts for operators, of the caller's
// account for others.
type Status struct {
	Build
	// URL is the base of the HTTP API, absent if it is not known.
	URL         string          `json:"url,omitempty"`
	Listener    Listener        `json:"listener"`
	Connectors  ConnectorCount  `json:"connectors"`
	Deployments DeploymentCount `json:"deployments"`
	Keys        KeyCount        `json:"keys"`
	// Edges are the gateways of the cluster, for operators and users of the default account.
	// They are absent if the gateway is alone.
	Edges []Edge `json:"edges,omitempty"`
	// Counters are of the whole gateway and for operators only.
	Counters tunnel.Counters `json:"counters,omitzero"`
	// Warnings are the problems of the configuration, for operators only.
	Warnings []string `json:"warnings,omitempty"`
	// DataDir is Caddy's data folder, for operators only.
	DataDir string `json:"data_dir,omitempty"`
}

// Build contains the versions of the program.
type Build struct {
	Version string `json:"version,omitempty"` // of Postern
	Commit  string `json:"commit,omitempty"`
	Caddy   string `json:"caddy,omitempty"` // version of the server that it is built into
}

// Listener describes where connectors dial.
type Listener struct {
	Address string `json:"address"`
	Public  string `json:"public,omitempty"`
	Pin     string `json:"pin"`
}

// ConnectorCount counts connectors.
type ConnectorCount struct {
	Total  int `json:"total"`
	Online int `json:"online"`
}

// DeploymentCount counts deployments.
type DeploymentCount struct {
	Total int `json:"total"`
	// Available counts the deployments that can answer now, including degraded ones.
	Available int                  `json:"available"`
	States    map[health.State]int `json:"states"`
}

// KeyCount counts keys.
type KeyCount struct {
	Active   int `json:"active"`
	Disabled int `json:"disabled"`
	Expired  int `json:"expired"`
	Revoked  int `json:"revoked"`

	Suspended int `json:"suspended"`
}

// Status reports on the gateway.
func (s *Service) Status(ctx context.Context) (Status, error) {
	caller := CallerFrom(ctx)
	accounts := []store.Account{{ID: caller.Account}}
	if caller.Operator {
		accounts = s.store.Accounts()
	} else if _, err := s.account(ctx); err != nil {
		return Status{}, err
	}
	endpoint := s.endpoint()
	st := Status{
		Build:       s.build,
		URL:         endpoint.URL,
		Listener:    Listener{Address: endpoint.Listen, Public: endpoint.Public, Pin: endpoint.Pin},
		Deployments: DeploymentCount{States: make(map[health.State]int)},
	}
	if caller.Operator {
		st.Counters, st.Warnings, st.DataDir = s.tunnels.Counters(), endpoint.Warnings, endpoint.DataDir
	}
	st.Edges, _ = s.Edges(ctx) // none if the caller may not see them
	live := s.sessions()
	for _, account := range accounts {
		for _, c := range s.store.Connectors(account.ID) {
			st.Connectors.Total++
			if _, online := live[c.ID]; online {
				st.Connectors.Online++
			}
		}
		for _, d := range s.store.Deployments(account.ID) {
			state := s.deploymentOf(d, live).State
			st.Deployments.Total++
			st.Deployments.States[state]++
			if state.Usable() {
				st.Deployments.Available++
			}
		}
		keys := s.store.CountKeys(account.ID)
		st.Keys.Active += keys[store.KeyValid]
		st.Keys.Disabled += keys[store.KeyDisabled]
		st.Keys.Expired += keys[store.KeyExpired]
		st.Keys.Revoked += keys[store.KeyRevoked]
		st.Keys.Suspended += keys[store.KeySuspended]
	}
	return st, nil
}

// Checklist contains the steps to the first request of an account.
type Checklist struct {
	Connector bool `json:"connector"` // a connector exists
	Model     bool `json:"model"`     // a deployment exists
	Key       bool `json:"key"`       // an active key exists
	Request   bool `json:"request"`   // a key was used
}

// Checklist returns the steps that the account has done.
func (s *Service) Checklist(ctx context.Context) (Checklist, error) {
	account, err := s.account(ctx)
	if err != nil {
		return Checklist{}, err
	}
	c := Checklist{
		Connector: len(s.store.Connectors(account)) > 0,
		Model:     len(s.store.Deployments(account)) > 0,
	}
	for _, k := range s.store.Keys(account) {
		c.Key = c.Key || k.State(s.now()) == store.KeyValid
		c.Request = c.Request || k.LastUsedAt != nil
	}
	c.Request = c.Request || slices.ContainsFunc(s.activity.Recent(account),
		func(r activity.Request) bool { return !r.FromConsole() && r.Refusals == 0 })
	return c, nil
}

// Clustered reports whether other gateways share the store.
func (s *Service) Clustered() bool { return s.cluster != nil }
