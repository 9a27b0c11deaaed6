package console

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

const modelsPath = "/console/models"

// modelsTab lists the deployments.
func modelsTab() *tab {
	return &tab{name: "models", title: "Models", data: modelsData, live: []string{"models-list"}, every: 30 * time.Second}
}

type modelsPage struct {
	List       listing[modelRow]
	Available  int
	Connectors int
}

type modelRow struct {
	manage.Deployment
	Way     string // upstream and model, as far as they are set
	ShowURL string
}

func modelsData(v *visit) (any, error) {
	deployments, err := v.manage.Deployments(v.Account)
	if err != nil {
		return nil, err
	}
	connectors, err := v.manage.Connectors(v.Account)
	if err != nil {
		return nil, err
	}
	p := &modelsPage{Connectors: len(connectors)}
	for _, d := range deployments {
		if d.State.Usable() {
			p.Available++
		}
	}
	found := list(modelsPath, v.r.URL.Query(), deployments, func(d manage.Deployment) string {
		return strings.Join(append(d.ConnectorNames(), d.Name, d.Upstream, d.Model, d.State.String()), "\n")
	})
	p.List = mapListing(found, modelRowOf)
	return p, nil
}

func modelRowOf(d manage.Deployment) modelRow {
	row := modelRow{Deployment: d, ShowURL: modelURL("show", d.Name)}
	switch {
	case d.Upstream != "" && d.Model != "":
		row.Way = d.Upstream + " → " + d.Model
	case d.Model != "":
		row.Way = d.Model
	case d.Upstream != "":
		row.Way = d.Upstream
	}
	return row
}

// modelURL is a page about a deployment. The name goes into the query: it may
// hold slashes and dots, which proxies like to tidy up in paths.
func modelURL(page, name string) string {
	return modelsPath + "/" + page + "?" + url.Values{"name": {name}}.Encode()
}

func (c *Console) modelsRoutes(handle func(pattern string, a action)) {
	handle("GET /console/models/new", c.page(registerTab))
	handle("GET /console/models/choices", c.modelChoices)
	handle("POST /console/models", c.registerModel)
	handle("GET /console/models/show", c.page(modelTab))
	handle("POST /console/models/test", c.testModel)
	handle("GET /console/models/remove", c.page(removeModelTab))
	handle("POST /console/models/remove", c.removeModel)
}

// modelTab is the page about one deployment: where it goes, a test, and what
// clients are to be told.
func modelTab() *tab {
	return &tab{name: "model", title: "Model", data: modelData, live: []string{"model-state"}, every: 30 * time.Second}
}

type modelPage struct {
	modelRow
	EditURL   string
	RemoveURL string
	TestURL   string
	Snippets  []snippet
	Test      *testRow
}

func modelData(v *visit) (any, error) {
	d, err := findDeployment(v, v.r.FormValue("name"))
	if err != nil {
		return nil, err
	}
	return &modelPage{
		modelRow: modelRowOf(d), Snippets: snippets(v.endpoint().URL, d.Name, ""),
		EditURL: modelURL("new", d.Name), RemoveURL: modelURL("remove", d.Name), TestURL: modelURL("test", d.Name),
	}, nil
}

func findDeployment(v *visit, name string) (manage.Deployment, error) {
	deployments, err := v.manage.Deployments(v.Account)
	if err != nil {
		return manage.Deployment{}, err
	}
	for _, d := range deployments {
		if d.Name == name {
			return d, nil
		}
	}
	return manage.Deployment{}, notThere("There is no model of this name any more.")
}

// testRow is what a test completion told.
type testRow struct {
	OK         bool
	Error      string
	Connector  string // that was asked
	FirstToken string
	Speed      string
	Tokens     int
	Tools      string
	Reason     string // why tools do not work, or why that is not known
	Answer     string
}

func testRowOf(r manage.TestResult) *testRow {
	row := &testRow{OK: r.OK, Error: sentence(r.Error), Connector: r.Connector, Tokens: r.Tokens, FirstToken: millis(r.FirstTokenMillis), Answer: r.Answer, Reason: sentence(r.ToolsReason)}
	if r.TokensPerSecond > 0 {
		row.Speed = decimal(r.TokensPerSecond) + " tokens/s"
	}
	switch r.Tools {
	case manage.ToolsWork:
		row.Tools = "work"
	case manage.ToolsNo:
		row.Tools = "do not work"
		row.Reason += " Agents such as Claude Code and Codex need a model that calls tools."
	default:
		row.Tools = "not known"
	}
	return row
}

// testModel runs a short completion. With a script its result takes its place
// on the page, without it is a page.
func (c *Console) testModel(w http.ResponseWriter, v *visit) error {
	name := v.r.FormValue("name")
	result, err := v.manage.TestDeployment(v.ctx, v.Account, name)
	if err != nil {
		return v.fault(modelsTab(), err)
	}
	row := testRowOf(result)
	if v.htmx() {
		return c.partial(w, v, "model-test", row)
	}
	data, err := modelData(v)
	if err != nil {
		return v.fault(modelsTab(), err)
	}
	p := data.(*modelPage)
	p.Test = row
	return c.show(w, v, modelTab(), http.StatusOK, p)
}

func removeModelTab() *tab {
	return &tab{name: "model-remove", title: "Remove a model", data: func(v *visit) (any, error) {
		d, err := findDeployment(v, v.r.FormValue("name"))
		return modelRowOf(d), err
	}}
}

func (c *Console) removeModel(w http.ResponseWriter, v *visit) error {
	removed, err := v.manage.RemoveDeployment(v.ctx, v.Account, v.r.PostFormValue("name"))
	if err != nil {
		return v.fault(modelsTab(), err)
	}
	return c.done(w, v, modelsPath, removed.Name+" is removed. New requests for it fail from now on.")
}
