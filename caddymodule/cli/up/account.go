package up

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// The names of the records that `caddy gateway up` creates.
const (
	ownName    = "local" // the connector, and its one upstream
	ownKeyName = "up"
)

// account is the default account of up.db. `caddy gateway up` updates its own records at
// every start; records of the user stay.
type account struct {
	service *manage.Service
	keyFile string // of the last run
	cloud   bool   // publish models that run in a cloud, too
}

// connector returns the id of the connector "local" and a new tunnel token for it. If
// another device has replaced that connector, it uses "local-2", and so on.
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
			rotated, err := a.service.RotateConnector(ctx, manage.RotateConnector{Connector: connectors[i].ID})
			if err != nil {
				return "", "", fmt.Errorf("creating a token for the connector: %w", err)
			}
			return rotated.ID, rotated.TunnelToken, nil
		}
		name = fmt.Sprintf("%s-%d", ownName, n)
	}
}

// online reports whether the tunnel of a connector is open.
func (a account) online(ctx context.Context, id string) (bool, error) {
	connectors, err := a.service.Connectors(ctx)
	isOnline := func(c manage.Connector) bool { return c.ID == id && c.State == manage.Online }
	return slices.ContainsFunc(connectors, isOnline), err
}

// publish creates a deployment for each model, and removes the deployments of former runs
// whose models no longer exist. It does not change deployments with other connectors: the
// user has set them.
func (a account) publish(ctx context.Context, connector string, models []string, ready *Ready) error {
	existing, err := a.service.Deployments(ctx)
	if err != nil {
		return fmt.Errorf("reading the deployments: %w", err)
	}
	byName := map[string]manage.Deployment{}
	for _, d := range existing {
		byName[d.Name] = d
	}
	isOwn := func(d manage.Deployment) bool { return slices.Equal(d.Connectors, []string{connector}) }
	used := map[string]bool{}
	var published, others []manage.Deployment // others: set by the user
	for _, model := range a.publishable(models, ready) {
		name := deploymentName(model)
		d, exists := byName[name]
		if name == "" || used[name] {
			ready.note("model %q is not published: its id gives no public name; use `%s gateway deployment set NAME "+
				"--connector %s --model …`", model, ready.Program, connector)
			continue
		}
		used[name] = true
		if exists && !isOwn(d) {
			if !slices.Contains(d.Connectors, connector) {
				ready.note("model %q is not published: the deployment of that name uses another connector", name)
			}
			others = append(others, d)
			continue
		}
		if name != model {
			ready.note("model %q is published as %s", model, name)
		}
		d, err := a.service.SetDeployment(ctx, name, func(d *manage.DeploymentFields) error {
			d.Connectors, d.Upstream, d.Model = []string{connector}, ownName, model
			return nil
		})
		if err != nil {
			return fmt.Errorf("publishing model %q: %w", model, err)
		}
		published = append(published, d)
	}
	if published = append(published, others...); len(published) == 0 {
		return fmt.Errorf("none of the server's models can be published: %s", strings.Join(ready.Notes, "; "))
	}
	ready.setModels(published)
	for _, d := range existing {
		if !isOwn(d) || used[d.Name] || d.Name != deploymentName(d.Model) {
			continue
		}
		if _, err := a.service.RemoveDeployment(ctx, d.Name); err != nil {
			return fmt.Errorf("removing the deployment %s of a former run: %w", d.Name, err)
		}
	}
	return nil
}

// setModels sets the published models, sorted, and one of them for a sample request.
func (r *Ready) setModels(published []manage.Deployment) {
	slices.SortFunc(published, func(a, b manage.Deployment) int { return strings.Compare(a.Name, b.Name) })
	r.sample = manage.Sample(published)
	for _, d := range published {
		r.Models = append(r.Models, d.Name)
	}
}

// publishable returns the models to publish, sorted. A request for a model in a cloud would leave the machine, so only
// --cloud publishes it.
func (a account) publishable(models []string, ready *Ready) []string {
	local := slices.DeleteFunc(slices.Sorted(slices.Values(models)), func(model string) bool {
		return manage.IsCloud(model) && !a.cloud
	})
	if clouds := len(models) - len(local); clouds > 0 {
		ready.note("models that run in a cloud are not published: %d; --cloud publishes them", clouds)
	}
	return local
}

// setKey sets the key of this run: the key of the last run if it is valid, or a new one.
func (a account) setKey(ctx context.Context, ready *Ready) error {
	keys, err := a.service.Keys(ctx)
	if err != nil {
		return fmt.Errorf("reading the keys: %w", err)
	}
	var saved manage.CreatedKey
	if data, err := os.ReadFile(a.keyFile); err == nil && json.Unmarshal(data, &saved) == nil {
		if slices.ContainsFunc(keys, func(k manage.Key) bool { return k.ID == saved.ID && k.State == store.KeyValid }) {
			ready.Key = saved.Key
			return nil
		}
		if saved.ID != "" {
			ready.note("the key of the last run was revoked or disabled, or has expired; the key above is new")
		}
	}
	name := ownKeyName
	for n := 2; slices.ContainsFunc(keys, func(k manage.Key) bool { return k.Name == name && k.RevokedAt == nil }); n++ {
		name = fmt.Sprintf("%s-%d", ownKeyName, n)
	}
	created, err := a.service.CreateKey(ctx, func(k *store.KeyFields) error {
		k.Name = name
		return nil
	})
	if err != nil {
		return fmt.Errorf("creating the key: %w", err)
	}
	ready.Key = created.Key
	data, err := json.Marshal(created)
	if err == nil {
		_ = os.Remove(a.keyFile) // another user may have created it
		err = os.WriteFile(a.keyFile, data, 0o600)
	}
	if err != nil {
		ready.note("the key cannot be saved, so the next run will create another one: %v", err)
	}
	return nil
}

// setConsole sets the URL of the console: a link that creates the first user, or the plain
// URL if a user exists.
func (a account) setConsole(ctx context.Context, path string, ready *Ready) error {
	link, err := a.service.SetupLink(ctx)
	switch {
	case err == nil:
		ready.Console, ready.Setup = link.URL, true
	case errors.Is(err, store.ErrConflict):
		ready.Console = ready.URL + path + "/"
	default:
		return fmt.Errorf("creating the setup link: %w", err)
	}
	return nil
}
