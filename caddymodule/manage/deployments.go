package manage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/wait"
	"github.com/postern-dev/postern/connector/window"
)

// Deployment is a listed deployment.
type Deployment struct {
	store.Deployment
	// Through are its connectors, in the order of Connectors.
	Through []DeploymentRoute `json:"through"`
	// State is the combined state of its routes.
	State health.State `json:"state"`
	// Available counts the available connectors.
	Available int `json:"available"`
	// ContextWindow is the smallest known context window of its online routes in tokens, and WindowSource how it is
	// known; 0: not known.
	ContextWindow int             `json:"context_window,omitempty" column:"WINDOW"`
	WindowSource  observed.Source `json:"window_source,omitempty"`
	// Running and Queued count its requests at this gateway.
	Running int `json:"running,omitempty" column:"RUNNING"`
	Queued  int `json:"queued,omitempty" column:"QUEUED"`
	// Status is "loading" or "unloaded" if no connector has loaded the model, as far as its server reports that.
	Status string `json:"status,omitempty"`
	// OfflineSince is when the last of its connectors disconnected, while all are
	// offline; nil: none was ever online.
	OfflineSince *time.Time `json:"offline_since,omitempty"`
	// Warning is why requests fail now on one of its online connectors, or lose a part of their prompts; or that its
	// fallback does not exist. It does not make the operation fail: a connector may be configured later.
	Warning string `json:"warning,omitempty"`
	// Replaced has the former values that the call has replaced, by field; connectors are those that it removed.
	Replaced map[string]string `json:"replaced,omitempty"`
	// Suggestion is a setting that would make it serve better.
	Suggestion string           `json:"suggestion,omitempty"`
	Efforts    observed.Efforts `json:"-"` // what /effort of Claude Code does
}

// StateText is the state in words: "degraded (1 of 2)", "cuts prompts over 4096 tokens".
func (d Deployment) StateText() string {
	return health.Text(d.State, d.Available, len(d.Through), shown(d.ContextWindow, d.WindowSource), d.Status)
}

// DeploymentRoute is the route of a deployment through one of its connectors.
type DeploymentRoute struct {
	ID    string       `json:"id"`
	Name  string       `json:"name"`
	State health.State `json:"state"`
	// Upstream and Model are the target of the route, while the connector is online.
	Upstream string `json:"upstream,omitempty"`
	Model    string `json:"model,omitempty"`
	// ContextWindow is the context window in tokens, while the connector is online; 0: not known.
	ContextWindow int             `json:"context_window,omitempty"`
	WindowSource  observed.Source `json:"window_source,omitempty"`
	Status        string          `json:"status,omitempty"`
	// Loaded is set if the upstream loads one model at a time.
	Loaded *Loaded `json:"loaded,omitempty"`
}

// StateText is the state in words.
func (r DeploymentRoute) StateText() string {
	return health.Text(r.State, 0, 0, shown(r.ContextWindow, r.WindowSource), r.Status)
}

// shown returns a window that answers have shown, 0 for others: a server may cut prompts that are shorter than those.
func shown(window int, source observed.Source) int {
	if source == observed.Refusal || source == observed.Measured {
		return window
	}
	return 0
}

// Chats reports whether it is a chat model.
func (d Deployment) Chats() bool { return d.ModelKind() == store.ChatModel }

// ConnectorNames returns the names of its connectors.
func (d Deployment) ConnectorNames() []string {
	names := make([]string, len(d.Through))
	for i, r := range d.Through {
		names[i] = r.Name
	}
	return names
}

// DeploymentFields are the fields of a deployment that people set.
type DeploymentFields struct {
	Connector    string          `json:"connector" flag:"-" help:"Its only connector, by id or name; instead of connectors"`
	Connectors   []string        `json:"connectors" flag:"connector" help:"Its connectors, by id or name; a new deployment needs one" flaghelp:"A connector of the model (required for a new one; may be repeated)"`
	AddConnector string          `json:"add_connector" help:"One more connector of the model"`
	Upstream     string          `json:"upstream" help:"The name of the upstream in the connector's configuration"`
	Model        string          `json:"model" help:"The model's name on that server"`
	Kind         store.ModelKind `json:"kind" help:"chat, embeddings, rerank, transcription, speech or image (default of a new one: what the model's name suggests)"`

	AlsoAs   []string `json:"also_as" help:"More names that clients may ask for, exact ones or patterns such as claude-*; [] is none" flaghelp:"One more name, or a pattern such as claude-*, that clients may ask for (may be repeated)"`
	Fallback string   `json:"fallback" help:"The deployment that serves requests which no connector of this one accepts"`

	MaxConcurrency int            `json:"max_concurrency" help:"Limit of running requests at each model server (default no limit)"`
	Options        compat.Options `json:"options" flag:"option" help:"Adjustments for the model server" flaghelp:"NAME=VALUE: adjustment for the model server (may be repeated)"`
}

// deployment returns the deployment with this name in the account of the caller.
func (s *Service) deployment(ctx context.Context, name string) (store.Deployment, error) {
	account, err := s.account(ctx)
	if err != nil {
		return store.Deployment{}, err
	}
	d, ok := s.store.Deployment(account, name)
	if !ok {
		return d, faultf(store.ErrNotFound, "deployment %q not found in account %q", name, account)
	}
	return d, nil
}

// SetDeployment creates a deployment or changes its fields. edit gets the present fields without the connectors,
// which stay unless it sets others. New requests use the new route; running ones finish on the old one.
func (s *Service) SetDeployment(ctx context.Context, name string,
	edit func(*DeploymentFields) error,
) (Deployment, error) {
	return change(ctx, s, func(account string) (Deployment, write, error) {
		var request DeploymentFields
		if err := edit(&request); err != nil {
			return Deployment{}, write{}, err
		}
		connectors, err := s.connectorIDs(account, request)
		if err != nil {
			return Deployment{}, write{}, err
		}
		var old store.Deployment
		var before values
		d, err := s.store.EditDeployment(ctx, account, name, func(d *store.Deployment) error {
			old, before = *d, valuesOf(d)
			f := DeploymentFields{
				Upstream: d.Upstream, Model: d.Model, Kind: d.Kind, Fallback: d.Fallback,
				AlsoAs:         slices.Clone(d.AlsoAs), // the decoder reuses a list
				MaxConcurrency: d.MaxConcurrency, Options: d.Options,
			}
			err := edit(&f)
			d.Upstream, d.Model, d.Kind, d.AlsoAs, d.Fallback = f.Upstream, f.Model, f.Kind, f.AlsoAs, f.Fallback
			d.MaxConcurrency, d.Options = f.MaxConcurrency, f.Options
			if d.Kind == "" && d.CreatedAt.IsZero() {
				d.Kind = KindOf(cmp.Or(d.Model, name))
			}
			if len(connectors) > 0 {
				d.Connectors = connectors
			}
			if f.AddConnector != "" {
				d.Connectors = append(slices.Clone(d.Connectors), f.AddConnector)
			}
			if err == nil && len(d.Connectors) == 0 {
				err = badRequest("field %q or %q is required for a new deployment", "connector", "connectors")
			}
			return err
		})
		set, after := s.recheck(ctx, d), valuesOf(d)
		set.Replaced = s.replaced(old, d, before, after)
		return set, write{"deployment.set", d.Name, d.Name, changed(before, after)}, err
	})
}

// replaced returns the values of a deployment that a change has replaced.
func (s *Service) replaced(old, set store.Deployment, before, after values) map[string]string {
	lost := make(map[string]string)
	for name, value := range before {
		if after[name] != value {
			lost[name] = value
		}
	}
	for name, lists := range map[string][2][]string{
		"connectors": {old.Connectors, set.Connectors}, "also_as": {old.AlsoAs, set.AlsoAs},
	} {
		gone := slices.DeleteFunc(slices.Clone(lists[0]), func(v string) bool { return slices.Contains(lists[1], v) })
		for i, v := range gone {
			if c, ok := s.store.Connector(v); ok && name == "connectors" {
				gone[i] = c.Name
			}
		}
		if lost[name] = strings.Join(gone, ", "); len(gone) == 0 {
			delete(lost, name)
		}
	}
	return lost
}

// CheckRoute returns a deployment as it would be, with the state of its routes.
func (s *Service) CheckRoute(ctx context.Context, d store.Deployment) (Deployment, error) {
	var err error
	d.Account, err = s.account(ctx)
	if err != nil {
		return Deployment{}, err
	}
	for _, id := range d.Connectors {
		if _, err := s.connector(d.Account, id); err != nil {
			return Deployment{}, err
		}
	}
	return s.recheck(ctx, d), nil
}

// recheck returns a deployment with its state. If a model server does not list the model, it asks for the list again,
// and waits for it up to a second: the model may be new.
func (s *Service) recheck(ctx context.Context, d store.Deployment) Deployment {
	for range 20 {
		missing := false
		for _, id := range d.Connectors {
			missing = s.tunnels.Recheck(id, tunnel.Target{Name: d.Name, Upstream: d.Upstream, Model: d.Model}) || missing
		}
		if !missing || wait.For(ctx, time.Second/20) != nil {
			break
		}
	}
	return s.deploymentOf(d, s.sessions())
}

// connectorIDs returns the ids of the connectors that a request names, nil if it names none.
func (s *Service) connectorIDs(account string, f DeploymentFields) ([]string, error) {
	names := f.Connectors
	switch {
	case f.Connector != "" && names != nil:
		return nil, badRequest("fields %q and %q cannot be used together; list all connectors in the latter", "connector",
			"connectors")
	case f.Connector != "":
		names = []string{f.Connector}
	case names != nil && len(names) == 0:
		return nil, badRequest("field %q is empty; a deployment has at least one connector", "connectors")
	}
	var ids []string
	for _, idOrName := range names {
		c, err := s.connector(account, idOrName)
		if err != nil {
			return nil, err
		}
		ids = append(ids, c.ID)
	}
	return ids, nil
}

// Deployments lists the deployments of the account by name. Members see neither connectors nor users.
func (s *Service) Deployments(ctx context.Context) ([]Deployment, error) {
	live, member := s.sessions(), s.owner(ctx) != ""
	return list(ctx, s, s.store.Deployments, func(d store.Deployment) Deployment {
		v := s.deploymentOf(d, live)
		if member {
			v.Through, v.Connectors, v.Warning, v.Suggestion = []DeploymentRoute{}, []string{}, "", ""
			v.CreatedBy, v.ChangedBy = store.Actor{}, store.Actor{}
		}
		return v
	})
}

// MatchScope selects deployments; Scope defaults to all.
type MatchScope struct {
	Scope string `json:"scope" need:"filled" flag:"-" help:"Only those of this scope: names or patterns, separated by commas"`
}

// MatchScope lists the deployments that a scope allows now, by name.
func (s *Service) MatchScope(ctx context.Context, m MatchScope) ([]Deployment, error) {
	allowed, err := scope.Parse(cmp.Or(m.Scope, "*"))
	if err != nil {
		return nil, badRequest("%v", err)
	}
	deployments, err := s.Deployments(ctx)
	return slices.DeleteFunc(deployments, func(d Deployment) bool { return !allowed.Allows(d.Name) }), err
}

// RemoveDeployment removes a deployment: later requests for it fail, running
// ones finish.
func (s *Service) RemoveDeployment(ctx context.Context, name string) (Deployment, error) {
	return change(ctx, s, func(account string) (Deployment, write, error) {
		d, err := s.store.RemoveDeployment(ctx, account, name)
		removed := s.deploymentOf(d, s.sessions())
		removed.Warning, removed.Suggestion = "", ""
		return removed, write{"deployment.remove", d.Name, d.Name, nil}, err
	})
}

// deploymentOf adds to a record the state of its routes.
func (s *Service) deploymentOf(d store.Deployment, live map[string]tunnel.Info) Deployment {
	v := Deployment{Deployment: d, Efforts: s.observed.Efforts(&d, "")}
	_, v.Status = s.observed.Status(&d)
	v.Kind = d.ModelKind()
	v.Running, v.Queued = s.load(d.Account, d.Name)
	states := make([]health.State, len(d.Connectors))
	for i, id := range d.Connectors {
		c, _ := s.store.Connector(id)
		r := DeploymentRoute{ID: id, Name: c.Name, State: health.Offline}
		if info, online := live[id]; online {
			info.Name = c.Name
			route := info.DeploymentRoute(tunnel.Target{Name: d.Name, Upstream: d.Upstream, Model: d.Model})
			found := s.observed.State(&d, id, route)
			r.State, r.Upstream, r.Model, r.Status = found.State, route.Upstream, route.Model, route.Status
			if route.OneModel {
				r.Loaded = s.loaded(d.Account, id, route.Upstream)
			}
			known := s.observed.Window(&d, id, route)
			r.ContextWindow, r.WindowSource = known.Tokens, known.Source
			if known.Tokens > 0 && (v.ContextWindow == 0 || known.Tokens < v.ContextWindow) {
				v.ContextWindow, v.WindowSource = known.Tokens, known.Source
			}
			route.State = r.State
			v.Warning = cmp.Or(v.Warning, warning(c.Name, route, found))
		} else if last := c.LastSeenAt; last != nil && (v.OfflineSince == nil || v.OfflineSince.Before(*last)) {
			v.OfflineSince = last
		}
		states[i], v.Through = r.State, append(v.Through, r)
	}
	if _, ok := s.store.Deployment(d.Account, d.Fallback); !ok && d.Fallback != "" {
		v.Warning = cmp.Or(v.Warning, fmt.Sprintf("the fallback %q does not exist; choose another one, or none", d.Fallback))
	}
	judge := d.Options.Safeguards
	if _, ok := s.store.Deployment(d.Account, judge); !ok && judge != "" && judge != compat.SafeguardsSelf {
		v.Warning = cmp.Or(v.Warning, fmt.Sprintf("option \"safeguards\": %q does not exist; choose another model, or off",
			judge))
	}
	v.Warning = cmp.Or(v.Warning, s.swapWarning(d, live))
	if d.MaxConcurrency == 0 && s.observed.Shared(&d) {
		v.Suggestion = "requests of several keys ran at once in the last hour; to make keys take turns, set " +
			"`max_concurrency` to the number of slots of the model server (llama.cpp: `-np`, Ollama: `OLLAMA_NUM_PARALLEL`)"
	}
	if v.State, v.Available = health.ModelState(states); v.State != health.Offline {
		v.OfflineSince = nil
	}
	return v
}

// swapWarning returns the problem of a deployment whose judge is another model of a server that loads one model at a
// time, "" without a problem.
func (s *Service) swapWarning(d store.Deployment, live map[string]tunnel.Info) string {
	judge, ok := s.store.Deployment(d.Account, d.Options.Safeguards)
	if !ok || d.Options.Safeguards == compat.SafeguardsSelf {
		return ""
	}
	for _, id := range d.Connectors {
		info, online := live[id]
		if !online || !slices.Contains(judge.Connectors, id) {
			continue
		}
		r := info.DeploymentRoute(tunnel.Target{Name: d.Name, Upstream: d.Upstream, Model: d.Model})
		j := info.DeploymentRoute(tunnel.Target{Name: judge.Name, Upstream: judge.Upstream, Model: judge.Model})
		c, _ := s.store.Connector(id)
		if r.OneModel && r.Upstream == j.Upstream && scope.Canonical(r.Model) != scope.Canonical(j.Model) {
			return fmt.Sprintf(`option "safeguards": %q is another model of the model server %q of connector %q, which loads `+
				"one at a time, so each judged request causes two swaps; choose self, or a model on another server", judge.Name,
				r.Upstream, c.Name)
		}
	}
	return ""
}

// warning returns the problem of a route through an online connector, and the fix;
// "" without a problem.
func warning(connector string, route tunnel.DeploymentRoute, found health.Finding) string {
	switch route.State {
	case health.UpstreamMissing:
		return strings.TrimPrefix(route.Problem.Error(), tunnel.ErrNoRoute.Error()+": ")
	case health.ServerDown:
		return fmt.Sprintf("connector %q cannot reach its model server %q; start the server there, or correct its address "+
			"in the connector's configuration", connector, route.Upstream)
	case health.ModelMissing:
		return fmt.Sprintf("model server %q of connector %q does not list the model %q; load it there, or correct "+
			"the model's name on the server", route.Upstream, connector, route.Model)
	case health.Hanging:
		return fmt.Sprintf("for 5 minutes, requests have had no first token from model server %q of connector %q, although "+
			"it can be reached; restart it", route.Upstream, connector)
	case health.CutsPrompts:
		return fmt.Sprintf("model server %q of connector %q %s; %s", route.Upstream, connector,
			health.Text(found.State, 0, 0, found.Window, ""), window.Remedy)
	case health.Slow:
		return fmt.Sprintf("connector %q: %s", connector, found.Pace())
	default:
		return ""
	}
}

// EachDeployment calls f for each deployment of all accounts.
func (s *Service) EachDeployment(f func(Deployment)) {
	live := s.sessions()
	for _, account := range s.store.Accounts() {
		for _, d := range s.store.Deployments(account.ID) {
			f(s.deploymentOf(d, live))
		}
	}
}
