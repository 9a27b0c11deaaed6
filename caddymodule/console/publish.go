package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// publicName returns the public name in a form. It defaults to the name of the model.
func publicName(r *http.Request) string {
	name := strings.TrimSpace(r.FormValue("name"))
	if r.Method != http.MethodPost {
		return name
	}
	return cmp.Or(name, formRoute(r).model)
}

// The answers to the question what becomes of the model that has the name already.
const (
	addConnectors = "add"
	replaceModel  = "replace"
)

// publishModel sets a deployment. It asks first if another model has the name, or if a model server does not list
// the model.
func publishModel(v *visit) error {
	to, name := formRoute(v.r), publicName(v.r)
	connectors := append([]string{v.typed("connector")}, v.r.PostForm["also"]...)
	if connectors[0] == "" {
		return badField("connector", "Choose the connector of the model.")
	}
	old, exists := published(load(v, v.Manage.Deployments), name)
	answer := v.typed("taken." + name)
	if exists && v.typed("change") != name && answer != addConnectors && answer != replaceModel {
		return v.askToPublish(func(p *publishPage) { p.Taken = old.ConnectorNames() }, fmt.Sprintf(
			"%s is published already, on %s. Choose below what to do, or another public name.", name,
			strings.Join(old.ConnectorNames(), ", ")))
	}
	adds := exists && answer == addConnectors
	if adds {
		connectors, to = append(slices.Clone(old.Connectors), connectors...), target{old.Upstream, old.Model}
	}
	slices.SortStableFunc(connectors[1:], func(a, b string) int { // known ones in their order
		return cmp.Compare(uint(slices.Index(old.Connectors, a)), uint(slices.Index(old.Connectors, b)))
	})
	ask, err := unlisted(v, old, name, connectors, to)
	if err != nil {
		return err
	}
	if ask != "" {
		return v.askToPublish(func(p *publishPage) {
			p.Unlisted = strings.Join(connectors, " ")
			if answer != "" {
				p.Taken, p.Answer = old.ConnectorNames(), answer
			}
		}, ask)
	}
	set, err := v.Manage.SetDeployment(v.ctx, name, func(d *manage.DeploymentFields) error {
		d.Connectors = connectors
		if adds {
			return nil
		}
		d.Upstream, d.Model = to.upstream, to.model
		return fillDeployment(v, d)
	})
	notice := set.Name + " is published."
	if exists {
		notice = "Saved: new requests for " + set.Name + " go to " + strings.Join(set.ConnectorNames(), ", ") + "."
	}
	return v.done(modelTab.url()+"?"+url.Values{"name": {set.Name}}.Encode(), notice, err)
}

// fillDeployment sets the fields of a deployment other than its route.
func fillDeployment(v *visit, d *manage.DeploymentFields) (err error) {
	d.Kind = cmp.Or(store.ModelKind(v.typed("kind")), manage.KindOf(cmp.Or(d.Model, publicName(v.r))))
	d.AlsoAs, d.Fallback = strings.Fields(v.typed("also_as")), v.typed("fallback")
	for _, o := range formOptions(v.r) {
		if err := d.Options.Set(o.Name, o.Text); err != nil {
			return badField("option."+o.Name, err.Error())
		}
	}
	d.MaxConcurrency, err = formConcurrency(v.r)
	return err
}

// published returns the deployment with a name, if there is one.
func published(all []manage.Deployment, name string) (manage.Deployment, bool) {
	if i := slices.IndexFunc(all, func(d manage.Deployment) bool { return d.Name == name }); i >= 0 {
		return all[i], true
	}
	return manage.Deployment{}, false
}

// askToPublish shows the form again, with a question.
func (v *visit) askToPublish(set func(*publishPage), text string) error {
	data, err := publishTab.read(v)
	if err != nil {
		return err
	}
	p := data.(*publishPage)
	set(p)
	return v.showFault(publishTab, http.StatusConflict, p, text)
}

// unlisted returns a question if the route is a new one and an online connector has no such model, unless the form
// says to save anyway.
func unlisted(v *visit, old manage.Deployment, name string, connectors []string, to target) (string, error) {
	same := slices.Equal(old.Connectors, connectors) && to == target{old.Upstream, old.Model}
	if same || v.typed("anyway") == strings.Join(connectors, " ") {
		return "", nil
	}
	d, err := v.Manage.CheckRoute(v.ctx,
		store.Deployment{Name: name, Connectors: connectors, Upstream: to.upstream, Model: to.model})
	for _, r := range d.Through {
		if r.State == health.ModelMissing {
			return fmt.Sprintf("%s does not list %s, so requests would fail there. Pick one of its models, or save anyway.",
				r.Name, r.Model), nil
		}
	}
	return "", err
}
