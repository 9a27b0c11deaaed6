// Package console is the web console of a gateway: the pages under /console/,
// with which its users pair connectors, register models and hand out keys, and
// the JSON API for them under /console/api/.
//
// Pages are rendered here and work without scripts: forms and links do it all.
// Scripts add what is nice to have: one stream per page keeps what it shows up
// to date (see live.go), countdowns run, buttons copy. All of it is ours or
// vendored, embedded, and allowed by a content security policy that knows no
// exception.
//
// Everything that a page shows or does goes through package manage, in the name
// of the user whom the session cookie stands for.
package console

import (
	"context"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Options configures a [Console]. Manage and SignIn are required.
type Options struct {
	Manage *manage.Service
	SignIn *signin.Service
	// ClientIP tells the address of a request's client, by which failed
	// sign-ins are counted; nil means that of the connection.
	ClientIP func(*http.Request) string
	// Changes has f called whenever something of an account may look different,
	// until stop is called. nil means that pages are only drawn again in
	// intervals.
	Changes func(account string, f func()) (stop func())
	Logger  *slog.Logger     // nil discards
	Now     func() time.Time // nil means time.Now
}

// Console serves the pages and the API; it is an [http.Handler].
type Console struct {
	manage   *manage.Service
	signIn   *signin.Service
	clientIP func(*http.Request) string
	changes  func(account string, f func()) (stop func())
	log      *slog.Logger
	now      func() time.Time

	templates *template.Template
	assets    *assets
	tabs      map[string]func() *tab // that have a stream
	streams   streams
	origins   *http.CrossOriginProtection
	mux       *http.ServeMux
	api       http.Handler

	refusals fair.Sampler // of requests from other origins
}

// visit is one request of a signed-in user.
type visit struct {
	*Console
	r       *http.Request
	User    store.User
	Session store.Session
	Account string
	ctx     context.Context // carries the manage.Caller
}

// tab is one page. Template name is its main part, and there is one template
// for each of its live regions; the element around region x has the id live-x.
type tab struct {
	name, title string
	data        func(v *visit) (any, error)
	live        []string
	every       time.Duration // how often regions are drawn again without a change; 0 means seldom
}

// action answers a request. It returns an error instead of answering: one of
// fault is shown on its tab, any other on a page of its own.
type action func(w http.ResponseWriter, v *visit) error

// New returns the console for o.
func New(o Options) (*Console, error) {
	c := &Console{
		manage: o.Manage, signIn: o.SignIn, clientIP: o.ClientIP, changes: o.Changes, log: o.Logger, now: o.Now,
		tabs: make(map[string]func() *tab), origins: http.NewCrossOriginProtection(), mux: http.NewServeMux(),
		api: o.Manage.Handler("/console/api"),
	}
	if c.clientIP == nil {
		c.clientIP = remoteIP
	}
	if c.changes == nil {
		c.changes = func(string, func()) func() { return func() {} }
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.now == nil {
		c.now = time.Now
	}
	var err error
	if c.assets, err = loadAssets(); err != nil {
		return nil, fmt.Errorf("loading the console's assets: %w", err)
	}
	if c.templates, err = loadTemplates(c.assets); err != nil {
		return nil, fmt.Errorf("loading the console's pages: %w", err)
	}
	c.routes()
	return c, nil
}

// routes registers everything that there is. Only here are pages listed.
func (c *Console) routes() {
	for _, t := range []func() *tab{startTab, modelsTab, keysTab, connectorsTab, activityTab, settingsTab} {
		c.handle("GET /console/"+t().name, c.page(t))
	}
	for _, t := range []func() *tab{startTab, modelsTab, modelTab, keysTab, connectorsTab, activityTab, settingsTab} {
		c.tabs[t().name] = t
	}
	for _, register := range []func(func(string, action)){
		c.startRoutes, c.modelsRoutes, c.keysRoutes, c.connectorsRoutes, c.settingsRoutes, c.confirmRoutes,
	} {
		register(c.handle)
	}
	c.handle("GET /console/{$}", c.home)
	c.handle("GET /console/events/{tab}", c.events)
	c.signInRoutes()

	c.mux.HandleFunc("GET /console", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/console/", http.StatusSeeOther)
	})
	c.mux.Handle("GET /console/static/{version}/{name}", c.assets)
	c.mux.HandleFunc("/console/api/", c.serveAPI)
	c.mux.HandleFunc("/", c.nowhere)
}

// handle registers an action for signed-in users.
func (c *Console) handle(pattern string, a action) {
	c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		v, ok := c.visit(r)
		if !ok {
			c.askToSignIn(w, r)
			return
		}
		if err := c.act(w, v, a); err != nil {
			c.failVisit(w, v, err)
		}
	})
}

// home leads to what is to be done: the way to the first request, or the models
// once that is gone.
func (c *Console) home(w http.ResponseWriter, v *visit) error {
	to := "/console/start"
	if done, err := v.manage.Checklist(v.Account); err == nil && done.Connector && done.Model && done.Key && done.Request {
		to = "/console/models"
	}
	http.Redirect(w, v.r, to, http.StatusSeeOther)
	return nil
}

// remoteIP is the address of a request's connection.
func remoteIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
