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

// registerTab is the form that registers a deployment, or gives one a new way.
var registerTab = &tab{name: "model-new", title: "Register a model", data: registerData}

type registerPage struct {
	Again      bool // the name is registered: this gives it a new way
	Name       string
	Connectors []connectorChoice
	// MaxConcurrency is as typed, "" for no bound.
	MaxConcurrency string
	Options        []optionChoice
	OptionsSet     bool // one of them is not at its default
	choices
}

// optionChoice is a switch of the model's and its values.
type optionChoice struct {
	compat.Option
	ID     string // of its field
	Field  string
	Chosen string
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

// showOptions fills in the part of the form with the switches.
func (p *registerPage) showOptions(options compat.Options) {
	p.OptionsSet = options != (compat.Options{})
	for _, o := range compat.All() {
		p.Options = append(p.Options, optionChoice{
			Option: o, Field: optionField(o), Chosen: o.Of(options), ID: "option-" + strings.ReplaceAll(o.Name, "_", "-"),
		})
	}
}

type connectorChoice struct {
	ID, Name string
	Online   bool
	Selected bool
	Also     bool // checked as one that has the model too
}

// choices is the part of the form that depends on the connector: a model is
// picked from those that its upstreams list, or the way is typed.
type choices struct {
	Connector string // name, "" if none is chosen yet
	Groups    []modelGroup
	Upstream  string // typed
	Model     string // typed
	ByHand    bool   // the typed fields are filled in
	Problems  []string
}

type modelGroup struct {
	Upstream string
	Picks    []modelPick
}

// modelPick is one model of one upstream; Value is what the form sends.
type modelPick struct {
	Value, Model string
	Selected     bool
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
	connectors, err := v.manage.Connectors(v.Account)
	if err != nil {
		return nil, err
	}
	p := &registerPage{Name: v.r.FormValue("name")}
	p.MaxConcurrency = v.r.FormValue("max_concurrency")
	options, _ := formOptions(v.r) // an unknown one is reported when the form is sent
	id, to, also := v.r.FormValue("connector"), formWay(v.r), v.r.Form["also"]
	if d, err := findDeployment(v, p.Name); err == nil {
		p.Again = true
		if id == "" {
			id, to, also = d.Connectors[0], way{d.Upstream, d.Model}, d.Connectors[1:]
			options = d.Options
			if d.MaxConcurrency > 0 {
				p.MaxConcurrency = strconv.Itoa(d.MaxConcurrency)
			}
		}
	}
	p.showOptions(options)
	if id == "" && len(connectors) == 1 {
		id = connectors[0].ID
	}
	for _, c := range connectors {
		p.Connectors = append(p.Connectors, connectorChoice{
			ID: c.ID, Name: c.Name, Online: c.State == manage.Online, Selected: c.ID == id,
			Also: slices.Contains(also, c.ID),
		})
	}
	at := slices.IndexFunc(connectors, func(c manage.Connector) bool { return c.ID == id })
	if at >= 0 {
		p.load(v, connectors[at])
	}
	p.choose(to)
	return p, nil
}

// load asks a connector for the models of its upstreams.
func (ch *choices) load(v *visit, c manage.Connector) {
	ch.Connector = c.Name
	if c.State != manage.Online {
		ch.Problems = append(ch.Problems, c.Name+" is offline, so its models are not known. Type the name of one, or start the connector and load them again.")
		return
	}
	upstreams, err := v.manage.UpstreamModels(v.ctx, v.Account, c.ID)
	if err != nil {
		ch.Problems = append(ch.Problems, sentence(err.Error()))
	}
	for _, u := range upstreams {
		if u.Error != "" {
			ch.Problems = append(ch.Problems, "Upstream "+u.Upstream+" did not say which models it has: "+u.Error)
		}
		g := modelGroup{Upstream: u.Upstream}
		for _, m := range u.Models {
			to := way{u.Upstream, m}
			if len(c.Upstreams) == 1 {
				to.upstream = "" // its only one, whatever it is called later
			}
			g.Picks = append(g.Picks, modelPick{Value: to.encode(), Model: m})
		}
		if len(g.Picks) > 0 {
			ch.Groups = append(ch.Groups, g)
		}
	}
}

// choose selects the pick that goes the same way, else it fills in the fields.
func (ch *choices) choose(to way) {
	if to == (way{}) {
		ch.ByHand = len(ch.Groups) == 0
		return
	}
	value := to.encode()
	for i := range ch.Groups {
		for j := range ch.Groups[i].Picks {
			if p := &ch.Groups[i].Picks[j]; p.Value == value {
				p.Selected = true
				return
			}
		}
	}
	ch.Upstream, ch.Model, ch.ByHand = to.upstream, to.model, true
}

// formBound is how many requests a form lets run at a time; 0 is any number.
func formBound(r *http.Request) (int, error) {
	text := strings.TrimSpace(r.PostFormValue("max_concurrency"))
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, badForm("Requests at a time is a number; leave it empty for no bound.")
	}
	return n, nil
}

// modelChoices draws the part of the form that depends on the connector.
func (c *Console) modelChoices(w http.ResponseWriter, v *visit) error {
	data, err := registerData(v)
	if err != nil {
		return v.fault(registerTab, err)
	}
	return c.partial(w, "model-choices", data)
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
	set, err := v.manage.SetDeployment(v.ctx, manage.SetDeployment{
		Account: v.Account, Name: name, Connectors: append([]string{v.r.PostFormValue("connector")}, v.r.PostForm["also"]...),
		Upstream: to.upstream, Model: to.model, MaxConcurrency: bound, Options: options,
	})
	if err != nil {
		return v.fault(registerTab, err)
	}
	return c.done(w, v, modelURL("show", set.Name), set.Name+" is registered. New requests for it go this way from now on.")
}
