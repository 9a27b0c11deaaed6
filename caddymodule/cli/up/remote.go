package up

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Call sends a request to the management API at an admin endpoint, and decodes the answer.
type Call func(ctx context.Context, admin, method, path string, body map[string]any, answer any) error

// remote is the service of an edge.
type remote struct {
	call   Call
	admin  string // address of its admin endpoint
	own    string // its URL
	public string // that of the balancer
}

// answerOf calls the management API of an edge.
func answerOf[T any](ctx context.Context, r remote, method, path string, body map[string]any) (answer T, err error) {
	err = r.call(ctx, r.admin, method, path, body, &answer)
	return answer, err
}

// made is answerOf for a change that need not be confirmed by an edge of a former run.
func made[T any](ctx context.Context, r remote, method, path string, body map[string]any) (T, error) {
	answer, err := answerOf[T](ctx, r, method, path, body)
	if store.Made(err) {
		err = nil
	}
	return answer, err
}

// deploymentPath returns the path of a deployment. Clients remove dot segments.
func deploymentPath(name string) string {
	return "/deployments/" + strings.ReplaceAll(url.PathEscape(name), ".", "%2E")
}

func (r remote) Connectors(ctx context.Context) ([]manage.Connector, error) {
	return answerOf[[]manage.Connector](ctx, r, http.MethodGet, "/connectors", nil)
}

func (r remote) CreateConnector(ctx context.Context, c manage.CreateConnector) (manage.CreatedConnector, error) {
	return answerOf[manage.CreatedConnector](ctx, r, http.MethodPost, "/connectors", map[string]any{"name": c.Name})
}

// RotateConnector tries again while an edge of a former run has not confirmed: only then the
// answer has the token.
func (r remote) RotateConnector(ctx context.Context, c manage.RotateConnector) (rotated manage.RotatedConnector, err error) {
	err = poll(ctx, "creating a token that all edges accept", func() (bool, error) {
		rotated, err = answerOf[manage.RotatedConnector](ctx, r, http.MethodPost, "/connectors/"+c.Connector+"/rotate", map[string]any{"show": c.Show})
		if errors.Is(err, store.ErrUnconfirmed) {
			return false, nil
		}
		return true, err
	})
	return rotated, err
}

func (r remote) Deployments(ctx context.Context) ([]manage.Deployment, error) {
	return answerOf[[]manage.Deployment](ctx, r, http.MethodGet, "/deployments", nil)
}

func (r remote) SetDeployment(ctx context.Context, d manage.SetDeployment) (manage.Deployment, error) {
	return made[manage.Deployment](ctx, r, http.MethodPut, deploymentPath(d.Name), map[string]any{
		"connectors": d.Connectors, "upstream": d.Upstream, "model": d.Model,
	})
}

func (r remote) RemoveDeployment(ctx context.Context, name string) (manage.Deployment, error) {
	return made[manage.Deployment](ctx, r, http.MethodDelete, deploymentPath(name), nil)
}

func (r remote) Keys(ctx context.Context) ([]manage.Key, error) {
	return answerOf[[]manage.Key](ctx, r, http.MethodGet, "/keys", nil)
}

func (r remote) CreateKey(ctx context.Context, k manage.CreateKey) (manage.CreatedKey, error) {
	return answerOf[manage.CreatedKey](ctx, r, http.MethodPost, "/keys", map[string]any{"name": k.Name})
}

// SetupLink returns a link that leads through the balancer.
func (r remote) SetupLink(ctx context.Context) (manage.Link, error) {
	link, err := answerOf[manage.Link](ctx, r, http.MethodPost, "/setup-link", map[string]any{})
	link.URL = r.public + strings.TrimPrefix(link.URL, r.own)
	return link, err
}
