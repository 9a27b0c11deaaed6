package up

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// The names of what `caddy gateway up` creates in its store.
const (
	ownName    = "local" // the connector, and its one upstream
	ownKeyName = "up"
)

// account is the default account of up.db, which `caddy gateway up` brings
// in line with the machine at every start. What a user added to it stays.
type account struct{ service *manage.Service }

// connector returns the id of the connector "local" and a new tunnel token for it.
// If its place was given to another device, it is "local-2", and so on.
func (a account) connector(ctx context.Context) (id, token string, err error) {
	connectors, err := a.service.Connectors(ctx)
	if err != nil {
		return "", "", fmt.Errorf("finding the connector: %w", err)
	}
	name := ownName
	for n := 2; ; n++ {
		i := slices.IndexFunc(connectors, func(c manage.Connector) bool { return c.Name == name })
		if i < 0 {
			created, err := a.service.CreateConnector(ctx, manage.CreateConnector{Name: name})
			if err != nil {
				return "", "", fmt.Errorf("creating the connector: %w", err)
			}
			return created.ID, created.TunnelToken, nil
		}
		if connectors[i].Pairing == "" {
			rotated, err := a.service.RotateConnector(ctx, manage.RotateConnector{Connector: connectors[i].ID, Show: true})
			if err != nil {
				return "", "", fmt.Errorf("creating a token for the connector: %w", err)
			}
			return rotated.ID, rotated.TunnelToken, nil
		}
		name = fmt.Sprintf("%s-%d", ownName, n)
	}
}

// register creates a deployment for every model, and removes those that a former
// run created for models that are gone. Names that lead elsewhere, or to more than
// this connector, are the user's doing and stay.
func (a account) register(ctx context.Context, connector string, models []string, ready *Ready) error {
	existing, err := a.service.Deployments(ctx)
	if err != nil {
		return fmt.Errorf("reading the deployments: %w", err)
	}
	elsewhere, before := map[string]bool{}, map[string]manage.Deployment{}
	for _, d := range existing {
		before[d.Name] = d
		elsewhere[d.Name] = !slices.Equal(d.Connectors, []string{connector})
	}
	made := map[string]bool{}
	var others []string // of the user, and served as well
	for _, model := range models {
		name := deploymentName(model)
		switch {
		case name == "" || made[name]:
			ready.note("model %q is not registered: its id gives no public name; use `%s gateway deployment set NAME --connector %s --model …`", model, ready.Program, connector)
			continue
		case elsewhere[name]:
			if !slices.Contains(before[name].Connectors, connector) {
				ready.note("model %q is not registered: the deployment of that name leads to another connector", name)
			}
			made[name], others = true, append(others, name)
			continue
		case name != model:
			ready.note("model %q is registered as %s", model, name)
		}
		_, err := a.service.SetDeployment(ctx, manage.SetDeployment{
			Name: name, Connectors: []string{connector}, Upstream: ownName, Model: model,
			MaxConcurrency: before[name].MaxConcurrency, Options: before[name].Options,
		})
		if err != nil {
			return fmt.Errorf("registering model %q: %w", model, err)
		}
		made[name] = true
		ready.Models = append(ready.Models, name)
	}
	if ready.Models = append(ready.Models, others...); len(ready.Models) == 0 {
		return fmt.Errorf("none of the server's models can be registered: %s", strings.Join(ready.Notes, "; "))
	}
	for _, d := range existing {
		if elsewhere[d.Name] || made[d.Name] || d.Name != deploymentName(d.Model) {
			continue
		}
		if _, err := a.service.RemoveDeployment(ctx, d.Name); err != nil {
			return fmt.Errorf("removing the deployment %s of a former run: %w", d.Name, err)
		}
	}
	return nil
}

// newKey creates the key of this run and removes those of former ones.
func (a account) newKey(ctx context.Context, ready *Ready) error {
	keys, err := a.service.Keys(ctx)
	if err != nil {
		return fmt.Errorf("reading the keys: %w", err)
	}
	removed := false
	for _, k := range keys {
		if k.Name != ownKeyName {
			continue
		}
		if err := a.service.RemoveKey(ctx, k.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("removing the key of the last run: %w", err)
		}
		removed = removed || k.RevokedAt == nil
	}
	if removed {
		ready.note("the key of the last run is removed; `%s gateway key create` creates one that stays", ready.Program)
	}
	key, err := a.service.CreateKey(ctx, manage.CreateKey{Name: ownKeyName})
	if err != nil {
		return fmt.Errorf("creating the key: %w", err)
	}
	ready.Key = key.Key
	return nil
}

// console reports where the console is: the link for its first user, or the
// address if there is a user from a former run.
func (a account) console(ctx context.Context, path string, ready *Ready) error {
	link, err := a.service.SetupLink(ctx)
	switch {
	case err == nil:
		ready.Console, ready.Setup = link.URL, true
	case errors.Is(err, store.ErrConflict):
		ready.Console = ready.URL + path + "/"
	default:
		return fmt.Errorf("making the setup link: %w", err)
	}
	return nil
}
