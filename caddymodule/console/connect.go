package console

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/clients"
	"github.com/postern-dev/postern/connector/window"
)

// connectTab is the page for people with only an API key. The key never reaches the console: the page's script sends it
// to the API alone, and opens this page again for the snippets of a model.
var connectTab = &tab{path: "connect", name: "connect", title: "Use an API key", noSections: true, data: connect}

type connectPage struct {
	API         string // base URL of the API if it is not on the console's site, else ""
	Base        string // base URL of the API for clients, without /v1
	Private     *privateAuthority
	Placeholder string    // for the key; the page's script replaces it
	MinWindow   int       // the page's script offers models with smaller windows last
	Snippets    []snippet // of the model in the query
}

func connect(v *visit) any {
	endpoint := v.Manage.Endpoint()
	p := connectPage{Base: v.endpoint().URL, Private: v.privateAuthority(), Placeholder: clients.KeyPlaceholder}
	p.MinWindow = clients.Find("claude").MinWindow // it needs the most
	if endpoint.URL != "" && endpoint.Console != "" && endpoint.Console != endpoint.URL+"/console/" {
		const own = "connect-src 'self'"
		p.API = endpoint.URL
		v.w.Header().Set("Content-Security-Policy", strings.Replace(policy, own, own+" "+endpoint.URL, 1))
	}
	var d manage.Deployment
	if d.Name = v.r.FormValue("model"); d.Name != "" {
		if err := scope.CheckName(d.Name); err != nil {
			v.err = badForm(err.Error())
			return p
		}
		tokens, err := strconv.Atoi(cmp.Or(v.r.FormValue("window"), "0")) // 0: unknown
		if err != nil || tokens < 0 || tokens > window.Max {
			v.err = badForm("The context window must be a whole number of tokens; 0 if it is not known.")
			return p
		}
		d.ContextWindow, d.Kind = tokens, store.ModelKind(v.r.FormValue("kind"))
		p.Snippets = snippetsOf(d, v.endpoint(), "")
	}
	return p
}
