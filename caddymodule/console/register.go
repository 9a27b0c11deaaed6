package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/manage"
)

// registerTab is the form that registers a deployment, or gives one a new route.
var registerTab = &tab{name: "model-new", title: "Register a model", data: registerData}

type registerPage struct {
	Again          bool // the name is registered: this gives it a new route
	Name           string
	Connectors     []manage.Connector
	Connector      string          // id of the chosen one, "" if none is yet
	Also           map[string]bool // ids of the others that have the model too
	MaxConcurrency string          // as typed, "" for no limit
	Switches       []compat.Option
	Options        compat.Options
	choices
}

// optionField is the name of the field of a switch.
func optionField(o compat.Option) string { return "option." + o.Name }

// formOptions are the switches as a form has them.
func formOptions(r *http.Request) (compat.Options, error) {
	var options compat.Options
	for _, o := range compat.All() {
		if err := options.Set(o.Name, r.FormValue(optionField(o))); err != nil {
			return compat.Options{}, badForm(sentence(err.Error()))
		}
	}
	return options, nil
}

// choices is the part of the form that depends on the connector: a model is
// picked from those that its upstreams list, or the route is typed.
type choices struct {
	From     string                  // name of the connector, "" if none is chosen yet
	Only     bool                    // it has one upstream
	Groups   []manage.UpstreamModels // those that list models
	Picked   string                  // the value of the chosen model
	Upstream string                  // typed
	Model    string                  // typed
	ByHand   bool                    // the typed fields are filled in
	Problems []string
}

// Pick is the value that the form sends for a model. The only upstream of a connector
// is not named: it is the one that serves the model, whatever it is called later.
func (ch *choices) Pick(upstream, model string) string {
	if ch.Only {
		upstream = ""
	}
	return way{upstream, model}.encode()
}

// way is where a deployment goes behind its connector.
type way struct{ upstream, model string }

func (w way) encode() string {
	return url.Values{"upstream": {w.upstream}, "model": {w.model}}.Encode()
}

// formWay is the way that a form asks for: the picked one, unless one was
// typed.
func formWay(r *http.Request) way {
	typed := way{strings.TrimSpace(r.FormValue("upstream")), strings.TrimSpace(r.FormValue("model"))}
	if typed != (way{}) {
		return typed
	}
	picked, err := url.ParseQuery(r.FormValue("pick"))
	if err != nil {
		return way{}
	}
	return way{picked.Get("upstream"), picked.Get("model")}
}

// registerData fills the form from what was typed, else from the deployment
// that a link names.
func registerData(v *visit) (any, error) {
	connectors, err := v.Manage.Connectors(v.ctx)
	if err != nil {
		return nil, err
	}
	p := &registerPage{
		Name: v.r.FormValue("name"), Connectors: connectors, Connector: v.r.FormValue("connector"), Also: map[string]bool{},
		MaxConcurrency: v.r.FormValue("max_concurrency"), Switches: compat.All(),
	}
	p.Options, _ = formOptions(v.r) // an unknown one is reported when the form is sent
	to, also := formWay(v.r), v.r.Form["also"]
	if d, err := findDeployment(v, p.Name); err == nil {
		p.Again = true
		if p.Connector == "" {
			p.Connector, to, also, p.Options = d.Connectors[0], way{d.Upstream, d.Model}, d.Connectors[1:], d.Options
			if d.MaxConcurrency > 0 {
				p.MaxConcurrency = strconv.Itoa(d.MaxConcurrency)
			}
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
	return p, nil
}

// load asks a connector for the models of its upstreams.
func (ch *choices) load(v *visit, c manage.Connector) {
	ch.From, ch.Only = c.Name, len(c.Upstreams) == 1
	if c.State != manage.Online {
		ch.Problems = append(ch.Problems, c.Name+" is offline, so its models are not known. Type the name of one, or start the connector and load them again.")
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

// choose selects the model that is on the same route, else it fills in the fields.
func (ch *choices) choose(to way) {
	ch.Picked = to.encode()
	for _, u := range ch.Groups {
		if slices.ContainsFunc(u.Models, func(model string) bool { return ch.Pick(u.Upstream, model) == ch.Picked }) {
			return
		}
	}
	ch.Upstream, ch.Model, ch.ByHand = to.upstream, to.model, len(ch.Groups) == 0 || to != way{}
}

// formBound is how many requests a form lets run at a time; 0 is any number.
func formBound(r *http.Request) (int, error) {
	text := strings.TrimSpace(r.PostFormValue("max_concurrency"))
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, badForm("Concurrent requests is a number; leave it empty for no limit.")
	}
	return n, nil
}

// modelChoices draws the part of the form that depends on the connector.
func (c *Console) modelChoices(w http.ResponseWriter, v *visit) error {
	data, err := registerData(v)
	if err != nil {
		return v.fault(registerTab, err)
	}
	return c.write(w, http.StatusOK, "model-choices", data)
}

// registerModel sets a deployment. Without a public name the model's own one
// becomes public.
func (c *Console) registerModel(w http.ResponseWriter, v *visit) error {
	to, name := formWay(v.r), strings.TrimSpace(v.r.PostFormValue("name"))
	if name == "" {
		name = to.model
	}
	if v.r.PostFormValue("connector") == "" {
		return v.fault(registerTab, badForm("Choose the connector that leads to the model."))
	}
	bound, err := formBound(v.r)
	if err != nil {
		return v.fault(registerTab, err)
	}
	options, err := formOptions(v.r)
	if err != nil {
		return v.fault(registerTab, err)
	}
	set, err := v.Manage.SetDeployment(v.ctx, manage.SetDeployment{
		Name: name, Connectors: append([]string{v.r.PostFormValue("connector")}, v.r.PostForm["also"]...),
		Upstream: to.upstream, Model: to.model, MaxConcurrency: bound, Options: options,
	})
	if err != nil {
		return v.fault(registerTab, err)
	}
	return c.done(w, v, modelURL("show", set.Name), set.Name+" is registered. New requests for it take this route.")
}
