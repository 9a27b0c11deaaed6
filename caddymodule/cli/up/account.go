package up

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// The names of what `caddy gateway up` makes in its store.
const (
	ownName    = "local" // the connector, and its one upstream
	ownKeyName = "up"
)

// secretStore keeps secrets by name, made on first use, and checks those of
// connectors.
type secretStore interface {
	Secret(ctx context.Context, name string, generate func() ([]byte, error)) ([]byte, error)
	ReplaceSecret(ctx context.Context, name string, old, value []byte) error
	AuthenticateConnector(id, secret string) (store.Connector, error)
}

// account is the default account of up.db, which `caddy gateway up` brings
// in line with the machine at every start. What a user added to it stays.
type account struct {
	service *manage.Service
	secrets secretStore
}

// errNoSecret means that the store does not have the connector's secret.
var errNoSecret = errors.New("the secret is not there")

// connector returns the id of the connector "local" and a tunnel token for
// it. The secret of the token is kept next to the connector: both ends of this
// tunnel are this process, and reusing the connector keeps the deployments
// that a user pointed at it. If its place was given to another device, it is
// "local-2", and so on.
func (a account) connector(ctx context.Context) (id, token string, err error) {
	connectors, err := a.service.Connectors("")
	if err != nil {
		return "", "", fmt.Errorf("finding the connector: %w", err)
	}
	name := ownName
	for n := 2; ; n++ {
		i := slices.IndexFunc(connectors, func(c manage.Connector) bool { return c.Name == name })
		if i < 0 {
			return a.newConnector(ctx, name)
		}
		id := connectors[i].ID
		secret, err := a.secrets.Secret(ctx, secretName(id), func() ([]byte, error) { return nil, errNoSecret })
		switch {
		case err == nil:
			if _, denied := a.secrets.AuthenticateConnector(id, string(secret)); denied == nil {
				return id, a.token(ctx, id, string(secret)), nil
			}
		case !errors.Is(err, errNoSecret):
			return "", "", fmt.Errorf("reading the connector's secret: %w", err)
		case name == ownName:
			// A run that was killed between the two writes left it behind.
			if _, err := a.service.RemoveConnector(ctx, "", id); err != nil {
				return "", "", fmt.Errorf("replacing the connector %q, which `caddy gateway up` did not make: %w", ownName, err)
			}
			return a.newConnector(ctx, name)
		}
		name = fmt.Sprintf("%s-%d", ownName, n)
	}
}

// keep returns a func that replaces the connector's token with a new one.
func (a account) keep(ctx context.Context, connector string) func(old, renewed string) error {
	return func(old, renewed string) error {
		from, err := link.ParseToken(old)
		if err != nil {
			return err
		}
		to, err := link.ParseToken(renewed)
		if err != nil {
			return err
		}
		return a.secrets.ReplaceSecret(ctx, secretName(connector), []byte(from.Secret), []byte(to.Secret))
	}
}

func (a account) newConnector(ctx context.Context, name string) (id, token string, err error) {
	created, err := a.service.CreateConnector(ctx, manage.CreateConnector{Name: name})
	if err != nil {
		return "", "", fmt.Errorf("creating the connector: %w", err)
	}
	parsed, err := link.ParseToken(created.TunnelToken)
	if err != nil {
		return "", "", fmt.Errorf("reading the new tunnel token: %w", err)
	}
	_, err = a.secrets.Secret(ctx, secretName(created.ID), func() ([]byte, error) { return []byte(parsed.Secret), nil })
	if err != nil {
		return "", "", fmt.Errorf("keeping the connector's secret: %w", err)
	}
	return created.ID, created.TunnelToken, nil
}

// token makes a token for where the gateway listens in this run.
func (a account) token(ctx context.Context, id, secret string) string {
	at := a.service.Status(ctx)
	return link.Token{Server: at.Listener.Public, URL: at.URL, Pin: at.Listener.Pin, Connector: id, Secret: secret}.Encode()
}

func secretName(connectorID string) string {
	return "up_" + connectorID
}

// register makes a deployment of every model, and removes those that a former
// run made for models that are gone. Names that lead elsewhere, or to more than
// this connector, are the user's doing and stay.
func (a account) register(ctx context.Context, connector string, models []string, ready *Ready) error {
	existing, err := a.service.Deployments("")
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
		if _, err := a.service.RemoveDeployment(ctx, "", d.Name); err != nil {
			return fmt.Errorf("removing the deployment %s of a former run: %w", d.Name, err)
		}
	}
	return nil
}

// newKey makes the key of this run and removes those of former ones.
func (a account) newKey(ctx context.Context, ready *Ready) error {
	keys, err := a.service.Keys("")
	if err != nil {
		return fmt.Errorf("reading the keys: %w", err)
	}
	removed := false
	for _, k := range keys {
		if k.Name != ownKeyName {
			continue
		}
		if err := a.service.RemoveKey(ctx, "", k.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("removing the key of the last run: %w", err)
		}
		removed = removed || k.RevokedAt == nil
	}
	if removed {
		ready.note("the key of the last run is removed; `%s gateway key create` makes one that stays", ready.Program)
	}
	key, err := a.service.CreateKey(ctx, manage.CreateKey{Name: ownKeyName})
	if err != nil {
		return fmt.Errorf("creating the key: %w", err)
	}
	ready.Key = key.Key
	return nil
}

// console says where the console is: the link for its first user, or the
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
