package console

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/manage"
)

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

// Adjusted reports whether an option is not at its default.
func (p *publishPage) Adjusted() bool {
	return slices.ContainsFunc(p.Options, func(o formOption) bool { return o.Text != "" && o.Text != o.Values[0] })
}

// fill fills the form with the fields of a deployment, but for its route.
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
