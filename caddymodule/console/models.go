package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

var (
	modelsTab = &tab{
		path: "models", name: "models", title: "Models", data: modelsData, live: []string{"models-list"},
	}
	// modelTab is the page of one deployment: its route, a test, and the configuration
	// of clients.
	modelTab = &tab{
		path: "models/show", name: "model", title: "Model", data: modelData,
		live: []string{"model-state", "model-use"},
	}
	removeModelTab = askTab("models/remove", "model-remove", "Remove a model", findDeployment)
)

type modelsPage struct {
	List       listing[usedModel]
	Available  int
	Connectors int
}

func modelsData(v *visit) any {
	p := &modelsPage{Connectors: len(load(v, v.Manage.Connectors))}
	usage, models := loadDayUsage(v), []usedModel{}
	for _, d := range load(v, v.Manage.Deployments) {
		models = append(models, usage.model(d))
		if d.State.Usable() {
			p.Available++
		}
	}
	p.List = list(v, modelColumns, models)
	return p
}

var modelColumns = columns[usedModel]{
	name: "models",
	text: func(d usedModel) string {
		return strings.Join(append(d.ConnectorNames(), d.Name, d.Upstream, d.Model, d.State.String(),
			authorText(d.Deployment)), "\n")
	},
	orders: []string{"name", "requests", "state", "connector", "window", "failed", "tokens", "speed"},
	values: func(d usedModel) []any {
		return []any{
			d.Name, d.Used.Requests, d.StateText(), strings.Join(d.ConnectorNames(), ", "), d.ContextWindow,
			d.Used.Outages(), d.Used.Tokens(), d.Used.Speed(),
		}
	},
	filters: []filter[usedModel]{
		{"state", "State", func(d usedModel) []string { return []string{d.StateText()} }},
		{"connector", "Connector", usedModel.ConnectorNames},
		{"kind", "Kind", func(d usedModel) []string { return []string{string(d.ModelKind())} }},
	},
}

type modelPage struct {
	usedModel
	Charts    []chart // none without requests
	Requests  []loggedRequest
	Clustered bool
	Snippets  []snippet
	Private   bool // a private authority has issued the gateway's certificate
	Test      *manage.TestResult
	Measured  []manage.Measurement
	Play      playForm
	Played    *manage.Played // nil before the first prompt
}

// pageTitle distinguishes the browser tabs of several models.
func (p *modelPage) pageTitle() string { return p.Name }

// modelData finds the deployment. Its name is in the query: it may contain slashes and
// dots, which proxies normalize in paths.
func modelData(v *visit) any {
	d, usage := findDeployment(v), loadDayUsage(v)
	p := &modelPage{
		usedModel: usage.model(d), Clustered: v.Manage.Clustered(),
		Snippets: snippetsOf(d, v.endpoint().URL, ""), Private: v.privateAuthority(), Play: newPlayForm(v),
	}
	if slices.ContainsFunc(usage.sums, func(s manage.UsageSum) bool { return s.Model == d.Name }) {
		p.Charts = usage.charts(d.Name)
	}
	p.Requests = lastRequests(v, manage.Activity{Model: d.Name})
	return p
}

func findDeployment(v *visit) manage.Deployment {
	return find(v, v.Manage.Deployments, func(d manage.Deployment) bool { return d.Name == v.r.FormValue("name") },
		"No model with this name.")
}

// testModel runs a short completion.
func testModel(v *visit) error {
	result, err := v.Manage.TestDeployment(v.ctx, v.r.FormValue("name"))
	return showResult(v, err, "model-test", &result, func(p *modelPage) { p.Test = &result })
}

// measureModel measures the context window.
func measureModel(v *visit) error {
	result, err := v.Manage.MeasureDeployment(v.ctx, v.r.FormValue("name"))
	return showResult(v, err, "model-measured", result, func(p *modelPage) { p.Measured = result })
}

// showResult shows the result of a test or a measurement: a part of the page with scripts, else a whole page.
func showResult(v *visit, err error, part string, result any, add func(*modelPage)) error {
	if err != nil {
		return err
	}
	if isHTMX(v.r) {
		return v.write(http.StatusOK, part, result)
	}
	p := modelData(v).(*modelPage)
	add(p)
	return v.show(modelTab, p, v.err)
}

// publishTab is the form that publishes a model or changes its route.
var publishTab = &tab{path: "models/new", name: "model-new", title: "Publish a model", data: publishData}

type publishPage struct {
	Again          bool     // it changes the model of this name
	Taken          []string // the connectors of another model of this name: the form asks what to do
	Answer         string   // to that
	Unlisted       string   // the connectors, if one lacks the model: the form asks whether to save anyway
	Now            manage.Deployment
	Name           string
	Connectors     []manage.Connector
	Connector      string          // id of the chosen connector, may be empty
	Also           map[string]bool // ids of the other connectors of the model
	Kind           store.ModelKind
	MaxConcurrency string // as typed, "" for no limit
	AlsoAs         string // as typed
	Fallback       string
	Others         []string // the other deployments
	Options        []formOption
	choices
}

// choices is the part of the form that depends on the connector: the model is picked
// from the lists of its upstreams, or the route is typed.
type choices struct {
	From     string                  // name of the connector, may be empty
	Only     bool                    // the connector has one upstream
	Groups   []manage.UpstreamModels // upstreams that list models
	Picked   string                  // the value of the chosen model
	Upstream string                  // typed
	Model    string                  // typed
	ByHand   bool                    // the typed fields are filled in
	Problems []string
	Kept     string // the model of the route, if the connector lists others
}

// Pick returns the form value of a model. The only upstream of a connector is left
// out, so that it can be renamed later.
func (ch *choices) Pick(upstream, model string) string {
	if ch.Only {
		upstream = ""
	}
	return target{upstream, model}.encode()
}

// target is the upstream and the model of a deployment behind its connector.
type target struct{ upstream, model string }

func (t target) encode() string {
	return url.Values{"upstream": {t.upstream}, "model": {t.model}}.Encode()
}

// formRoute returns the route of a form: the typed one, else the picked one.
func formRoute(r *http.Request) target {
	typed := target{strings.TrimSpace(r.FormValue("upstream")), strings.TrimSpace(r.FormValue("model"))}
	if typed != (target{}) {
		return typed
	}
	picked, err := url.ParseQuery(r.FormValue("pick"))
	if err != nil {
		return target{}
	}
	return target{picked.Get("upstream"), picked.Get("model")}
}

// publishData fills the form from the user's input, or from the deployment that
// the URL names.
func publishData(v *visit) any {
	connectors, deployments := load(v, v.Manage.Connectors), load(v, v.Manage.Deployments)
	p := &publishPage{
		Name: publicName(v.r), Connectors: connectors, Connector: v.r.FormValue("connector"), Also: map[string]bool{},
		Kind: store.ModelKind(v.r.FormValue("kind")), MaxConcurrency: v.r.FormValue("max_concurrency"),
		AlsoAs: v.r.FormValue("also_as"), Fallback: v.r.FormValue("fallback"), Options: formOptions(v.r),
	}
	to, also := formRoute(v.r), v.r.Form["also"]
	for _, d := range deployments {
		if d.Name != p.Name {
			p.Others = append(p.Others, d.Name)
			continue
		}
		p.Now = d
		p.Again = v.r.FormValue("change") == d.Name || p.Connector == "" // the link to change a model has no connector
		if p.Connector == "" {
			p.Connector, to, also = d.Connectors[0], target{d.Upstream, d.Model}, d.Connectors[1:]
			p.fill(d)
		}
	}
	if p.Connector == "" && len(connectors) == 1 {
		p.Connector = connectors[0].ID
	}
	for _, id := range also {
		p.Also[id] = true
	}
	for _, c := range connectors {
		if c.ID == p.Connector {
			p.load(v, c)
		}
	}
	p.choose(to)
	return p
}

// load queries the models of a connector's upstreams.
func (ch *choices) load(v *visit, c manage.Connector) {
	ch.From, ch.Only = c.Name, len(c.Upstreams) == 1
	if c.State != manage.Online {
		ch.Problems = append(ch.Problems,
			c.Name+" is offline, so its models are not known. "+
				"Enter a model by hand, or start the connector and load the models again.")
		return
	}
	upstreams, err := v.Manage.UpstreamModels(v.ctx, c.ID)
	if err != nil {
		ch.Problems = append(ch.Problems, sentence(err.Error()))
	}
	for _, u := range upstreams {
		if u.Error != "" {
			ch.Problems = append(ch.Problems, "Upstream "+u.Upstream+" did not list its models: "+u.Error)
		}
		if len(u.Models) > 0 {
			ch.Groups = append(ch.Groups, u)
		}
	}
}

// choose selects the listed model of a route, or fills in the typed fields.
func (ch *choices) choose(to target) {
	ch.Picked = to.encode()
	for _, u := range ch.Groups {
		if slices.ContainsFunc(u.Models, func(model string) bool { return ch.Pick(u.Upstream, model) == ch.Picked }) {
			return
		}
	}
	if len(ch.Groups) > 0 && to.model != "" {
		ch.Kept = to.model
		return
	}
	ch.Upstream, ch.Model, ch.ByHand = to.upstream, to.model, to != target{} || ch.From != "" && len(ch.Groups) == 0
}

// formConcurrency returns the limit of concurrent requests; 0 means no limit.
func formConcurrency(r *http.Request) (int, error) {
	text := strings.TrimSpace(r.PostFormValue("max_concurrency"))
	if text == "" {
		return 0, nil
	}
	n, ok := limits.ParseAmount(text)
	if !ok {
		return 0, badField("max_concurrency", "It must be a whole number; leave it empty for no limit.")
	}
	return n, nil
}

// modelChoices renders the part of the form that depends on the connector.
func modelChoices(v *visit) error {
	data, err := publishTab.read(v)
	if err != nil {
		return err
	}
	return v.write(http.StatusOK, "model-choices", data)
}

// formOption is an option in the form of a deployment.
type formOption struct {
	compat.Option
	Text string // as typed or chosen; "" is the default
}

// formOptions returns the options with their values in a form.
func formOptions(r *http.Request) (options []formOption) {
	for _, o := range compat.All() {
		options = append(options, formOption{o, strings.TrimSpace(r.FormValue("option." + o.Name))})
	}
	return options
}

// Adjusted reports whether an option differs from its default.
func (p *publishPage) Adjusted() bool {
	return slices.ContainsFunc(p.Options, func(o formOption) bool { return o.Text != "" && o.Text != o.Values[0] })
}

// fill fills the form with the fields of a deployment, except its route.
func (p *publishPage) fill(d manage.Deployment) {
	p.Kind, p.AlsoAs, p.Fallback = d.Kind, strings.Join(d.AlsoAs, "\n"), d.Fallback
	if d.MaxConcurrency > 0 {
		p.MaxConcurrency = strconv.Itoa(d.MaxConcurrency)
	}
	for i, o := range p.Options {
		if value := o.Value(d.Options); value != o.Values[0] {
			p.Options[i].Text = value
		}
	}
}
