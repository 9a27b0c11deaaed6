package console

import (
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var (
	modelsTab = &tab{path: "models", name: "models", title: "Models", data: modelsData, live: []string{"models-list"}, every: 30 * time.Second}
	// modelTab is the page of one deployment: its route, a test, and the configuration
	// of clients.
	modelTab       = &tab{path: "models/show", name: "model", title: "Model", data: modelData, live: []string{"model-state"}, every: 30 * time.Second}
	removeModelTab = &tab{path: "models/remove", name: "model-remove", title: "Remove a model", data: func(v *visit) any {
		return findDeployment(v, v.r.FormValue("name"))
	}}
)

type modelsPage struct {
	List       listing[manage.Deployment]
	Available  int
	Connectors int
}

func modelsData(v *visit) any {
	deployments := load(v, v.Manage.Deployments)
	p := &modelsPage{Connectors: len(load(v, v.Manage.Connectors))}
	for _, d := range deployments {
		if d.State.Usable() {
			p.Available++
		}
	}
	p.List = list(v, "models", deployments, func(d manage.Deployment) string {
		return strings.Join(append(d.ConnectorNames(), d.Name, d.Upstream, d.Model, d.State.String()), "\n")
	})
	return p
}

type modelPage struct {
	manage.Deployment
	Snippets []snippet
	Test     *manage.TestResult
}

// modelData finds the deployment. Its name is in the query: it may contain slashes and
// dots, which proxies normalize in paths.
func modelData(v *visit) any {
	d := findDeployment(v, v.r.FormValue("name"))
	return &modelPage{Deployment: d, Snippets: snippets(values{Base: v.endpoint().URL, Model: d.Name})}
}

func findDeployment(v *visit, name string) manage.Deployment {
	return find(v, v.Manage.Deployments, func(d manage.Deployment) bool { return d.Name == name }, "No model with this name.")
}

// testModel runs a short completion. Its result is a part of the page with scripts,
// and a whole page without them.
func testModel(v *visit) error {
	result, err := v.Manage.TestDeployment(v.ctx, v.r.FormValue("name"))
	if err != nil {
		return err
	}
	if isHTMX(v.r) {
		return v.write(http.StatusOK, "model-test", &result)
	}
	p := modelData(v).(*modelPage)
	p.Test = &result
	return v.show(modelTab, p, v.err)
}

func removeModel(v *visit) error {
	removed, err := v.Manage.RemoveDeployment(v.ctx, v.typed("name"))
	return v.done(modelsTab.url(), removed.Name+" is removed. New requests for it fail from now on.", err)
}
