// Package console is the web console of a gateway: the pages under /console/,
// with which its users pair connectors, publish models and hand out keys, and
// the JSON API for them under /console/api/.
//
// Pages are rendered on the server and work without scripts, with forms and links.
// Scripts add convenience: one stream per page keeps it up to date (see live.go),
// countdowns run, buttons copy. All scripts are ours or vendored, and embedded. The
// content security policy has no exceptions.
//
// Pages read and change everything through package manage, as the user of the
// session cookie.
package console

import (
	"html/template"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/signin/oidc"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/logs"
	"github.com/postern-dev/postern/docs"
)

// Options configures a [Console]. All but Issuers are required.
type Options struct {
	Manage *manage.Service
	SignIn *signin.Service
	// ClientIP returns the address of a request's client. Failed sign-ins are
	// counted by it.
	ClientIP func(*http.Request) string
	// Changes calls f whenever a record or a tunnel of an account may have changed,
	// until stop is called.
	Changes func(account string, f func()) (stop func())
	Issuers []*oidc.Issuer
	Logger  *slog.Logger
	Now     func() time.Time
}

// Console serves the pages and the API; it is an [http.Handler].
type Console struct {
	Options

	templates  map[store.Role]*template.Template
	operations map[string]string // of routes, by pattern
	tabs       map[string]*tab   // tabs with a stream, by name
	livePages  livePages
	origins    *http.CrossOriginProtection
	mux        *http.ServeMux
	api        http.Handler

	refusals logs.Sampler[netip.Prefix] // of requests from other origins
}

// New returns the console for o.
func New(o Options) *Console {
	files := loadAssets()
	c := &Console{
		Options: o, operations: make(map[string]string), tabs: make(map[string]*tab),
		livePages: livePages{accounts: make(map[string]*liveAccount)},
		origins:   http.NewCrossOriginProtection(), mux: http.NewServeMux(), api: o.Manage.Handler("/console/api"),
	}
	for _, r := range routes {
		c.operations[r.pattern] = r.operation
		c.handle(r, true)
		if r.opens != nil && r.opens.live != nil {
			c.tabs[r.opens.name] = r.opens
		}
	}
	for pattern, do := range openActions {
		c.handle(route{pattern: pattern, do: do}, false)
	}
	c.templates = c.loadTemplates(files)
	c.mux.Handle("GET /console/static/{version}/{name}", files)
	c.mux.HandleFunc("GET /console/install.sh", c.script(downloads.Install.Shell))
	c.mux.HandleFunc("GET /console/install.ps1", c.script(downloads.Install.PowerShell))
	c.mux.HandleFunc("GET /console/use.sh", c.script(downloads.Use.Shell))
	c.mux.HandleFunc("GET /console/use.ps1", c.script(downloads.Use.PowerShell))
	c.mux.HandleFunc("GET /console/root.crt", c.script(root))
	c.mux.HandleFunc("POST /console/use", c.tradeSetup)
	c.mux.HandleFunc("GET /console/connectors/{name}", c.archive)
	c.mux.HandleFunc("/console/api/", c.serveAPI)
	// Both are the same for every gateway, so they need no session.
	c.mux.Handle("GET /console/api/openapi.json", document(docs.OpenAPI))
	c.mux.Handle("GET /console/connector.schema.json", document(docs.ConnectorSchema))
	return c
}

// document serves a JSON document of the repository.
func document(text []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(text) // fails only if the client has gone
	})
}

// handle registers a route. ofUsers requires a session.
func (c *Console) handle(entry route, ofUsers bool) {
	c.mux.HandleFunc(entry.pattern, func(w http.ResponseWriter, r *http.Request) {
		v, err := c.visit(w, r)
		if err != nil {
			v.respond(manage.StatusOf(err), sentence(err.Error()), err)
			return
		}
		if v.errorTab = entry.errorTab; ofUsers && !v.signedIn() {
			v.askToSignIn()
			return
		}
		if ofUsers {
			if err := v.may(entry.pattern); err != nil {
				v.errorTab = nil // its page is not for this user, either
				v.fail(err)
				return
			}
			if err := v.Manage.Pace(v.ctx, r.Method); err != nil {
				v.fail(err)
				return
			}
		}
		if err := v.act(entry.do); err != nil {
			v.fail(err)
		}
	})
}

// home redirects to the Setup tab, or to the Home tab once the setup is done.
func home(v *visit) error {
	if v.may("GET "+homeTab.url()) != nil {
		return v.redirect(modelsTab.url())
	}
	done, err := v.Manage.Checklist(v.ctx)
	if err == nil && steps(done) == 4 || v.may("GET "+startTab.url()) != nil {
		return v.redirect(homeTab.url())
	}
	return v.redirect(startTab.url())
}
