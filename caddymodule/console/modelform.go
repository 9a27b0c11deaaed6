package console

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/manage"
)

// formOption is an option in the form of a deployment.
type formOption struct {
	compat.Option
	Text string // as typed; "" is the default
}

// optionGroup is a part of the form.
type optionGroup []formOption

// Changed reports whether an option is not at its default.
func (g optionGroup) Changed() bool {
	return slices.ContainsFunc(g, func(o formOption) bool { return o.Text != "" && o.Text != o.Values[0] })
}

// groupOf is the part of the form that has an option. The others are adjustments for particular model servers.
var groupOf = map[string]string{
	"order": "choice", "first_token_timeout": "choice", "context_window": "window", "overflow": "window",
	"defaults": "parameters", "force": "parameters", "efforts": "parameters",
}

// Group returns the options of a part of the form.
func (p *publishPage) Group(name string) (group optionGroup) {
	for _, o := range compat.All() {
		if groupOf[o.Name] != name {
			continue
		}
		text := p.Options[o.Name]
		if o.Form == "" {
			text = cmp.Or(text, o.Values[0])
		}
		group = append(group, formOption{o, text})
	}
	return group
}

// fill fills the form with the fields of a deployment, but for its route.
func (p *publishPage) fill(d manage.Deployment) {
	p.Kind, p.AlsoAs, p.Fallback = d.Kind, strings.Join(d.AlsoAs, "\n"), d.Fallback
	if d.MaxConcurrency > 0 {
		p.MaxConcurrency = strconv.Itoa(d.MaxConcurrency)
	}
	for _, o := range compat.All() {
		if value := o.Value(d.Options); value != o.Values[0] {
			p.Options[o.Name] = value
		}
	}
}

// typedOption returns the text in the field of an option.
func typedOption(r *http.Request, o compat.Option) string {
	return strings.TrimSpace(r.FormValue("option." + o.Name))
}

// formNames returns the names in a field: one on each line, or separated by commas.
func formNames(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}
