package console

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

const modelsPath = "/console/models"

var (
	modelsTab = &tab{name: "models", title: "Models", data: modelsData, live: []string{"models-list"}, every: 30 * time.Second}
	// modelTab is the page of one deployment: its route, a test, and the configuration
	// of clients.
	modelTab       = &tab{name: "model", title: "Model", data: modelData, live: []string{"model-state"}, every: 30 * time.Second}
	removeModelTab = &tab{name: "model-remove", title: "Remove a model", data: func(v *visit) (any, error) {
		return findDeployment(v, v.r.FormValue("name"))
	}}
)

type modelsPage struct {
	List       listing[manage.Deployment]
	Available  int
	Connectors int
}

func modelsData(v *visit) (any, error) {
	deployments, err := v.Manage.Deployments(v.ctx)
	if err != nil {
		return nil, err
	}
	connectors, err := v.Manage.Connectors(v.ctx)
	if err != nil {
		return nil, err
	}
	p := &modelsPage{Connectors: len(connectors)}
	for _, d := range deployments {
		if d.State.Usable() {
			p.Available++
		}
	}
	p.List = list(modelsPath, v.r.URL.Query(), deployments, func(d manage.Deployment) string {
		return strings.Join(append(d.ConnectorNames(), d.Name, d.Upstream, d.Model, d.State.String()), "\n")
	})
	return p, nil
}

// modelURL returns the URL of a page about a deployment. The name is in the query:
// it may contain slashes and dots, which proxies normalize in paths.
func modelURL(page, name string) string {
	return modelsPath + "/" + page + "?" + url.Values{"name": {name}}.Encode()
}

type modelPage struct {
	manage.Deployment
	Snippets []snippet
	Test     *manage.TestResult
}

func modelData(v *visit) (any, error) {
	d, err := findDeployment(v, v.r.FormValue("name"))
	return &modelPage{Deployment: d, Snippets: snippets(values{Base: v.endpoint().URL, Model: d.Name})}, err
}

func findDeployment(v *visit, name string) (manage.Deployment, error) {
	return find(v, v.Manage.Deployments, func(d manage.Deployment) bool { return d.Name == name }, "No model with this name.")
}

// testModel runs a short completion. Its result is a part of the page with scripts,
// and a whole page without them.
func (c *Console) testModel(w http.ResponseWriter, v *visit) error {
	result, err := v.Manage.TestDeployment(v.ctx, v.r.FormValue("name"))
	if err != nil {
		return v.fault(modelsTab, err)
	}
	if isHTMX(v.r) {
		return c.write(w, http.StatusOK, "model-test", &result)
	}
	data, err := modelData(v)
	if err != nil {
		return v.fault(modelsTab, err)
	}
	p := data.(*modelPage)
	p.Test = &result
	return c.show(w, v, modelTab, http.StatusOK, p)
}

func removeModel(v *visit) (notice string, err error) {
	removed, err := v.Manage.RemoveDeployment(v.ctx, v.r.PostFormValue("name"))
	return removed.Name + " is removed. New requests for it fail from now on.", err
}
