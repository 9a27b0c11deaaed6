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
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/logs"
	"github.com/postern-dev/postern/docs"
)

// Options configures a [Console]. All are required.
type Options struct {
	Manage *manage.Service
	SignIn *signin.Service
	// ClientIP returns the address of a request's client. Failed sign-ins are
	// counted by it.
	ClientIP func(*http.Request) string
	// Changes calls f whenever a record or a tunnel of an account may have changed,
	// until stop is called.
	Changes func(account string, f func()) (stop func())
	Logger  *slog.Logger
	Now     func() time.Time
}

// Console serves the pages and the API; it is an [http.Handler].
type Console struct {
	Options

	templates map[store.Role]*template.Template
	tabs      map[string]*tab // that have a stream
	gallery   gallery
	origins   *http.CrossOriginProtection
	mux       *http.ServeMux
	api       http.Handler

	refusals logs.Sampler[netip.Prefix] // of requests from other origins
}

// New returns the console for o.
func New(o Options) *Console {
	files := loadAssets()
	c := &Console{
		Options: o, templates: loadTemplatesOf(files, o.Manage), tabs: make(map[string]*tab),
		origins: http.NewCrossOriginProtection(),
		mux:     http.NewServeMux(), api: o.Manage.Handler("/console/api"),
	}
	for _, t := range pages {
		c.handle("GET "+t.url(), route{t.open, t.faults}, true)
		if t.live != nil {
			c.tabs[t.name] = t
		}
	}
	for pattern, r := range actions {
		c.handle(pattern, r, true)
	}
	for pattern, do := range openActions {
		c.handle(pattern, route{do: do}, false)
	}
	c.mux.Handle("GET /console/static/{version}/{name}", files)
	c.mux.HandleFunc("GET /console/install.sh", c.script(downloads.Shell))
	c.mux.HandleFunc("GET /console/install.ps1", c.script(downloads.PowerShell))
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

// pages are the tabs that have a URL.
var pages = []*tab{
	homeTab, startTab, modelsTab, modelTab, publishTab, removeModelTab, keysTab, newKeyTab, keyTab, revokeKeyTab,
	connectorsTab, connectorTab,
	newConnectorTab,
	rotateConnectorTab, removeConnectorTab, pairingTab, replaceTab, usageTab, activityTab, requestTab, auditTab, edgesTab,
	removeEdgeTab, settingsTab, removePasskeyTab, removeUserTab, revokeTokenTab,
}

// route is an action of signed-in users, and the tab that shows its errors.
type route struct {
	do     action
	faults *tab // nil: errors have a page of their own
}

// actions are what signed-in users can do in addition to opening pages.
var actions = map[string]route{
	"GET /console/{$}":                    {do: home},
	"GET /console/events/{tab}":           {do: events},
	"GET /console/keys/preview":           {do: previewScope},
	"GET /console/keys/{id}/created":      {do: keyCreated},
	"GET /console/models/choices":         {modelChoices, publishTab},
	"GET /console/confirm":                {do: confirm},
	"POST /console/confirm":               {do: confirmed},
	"POST /console/confirm/passkey":       {do: confirmByPasskey},
	"POST /console/confirm/passkey/begin": {do: beginSignInByPasskey},

	"POST /console/start/pairing":         {startPairing, startTab},
	"POST /console/start/register":        {publishOffer, startTab},
	"POST /console/pairings/{id}/approve": {do: approvePairing},
	"POST /console/pairings/{id}/deny":    {do: denyPairing},

	"POST /console/models":                 {publishModel, publishTab},
	"POST /console/models/test":            {testModel, modelsTab},
	"POST /console/models/play":            {play, modelTab},
	"POST /console/models/remove":          {removeModel, modelsTab},
	"POST /console/keys":                   {createKey, newKeyTab},
	"POST /console/keys/{id}":              {editKey, keyTab},
	"POST /console/keys/{id}/rotate":       {rotateKey, keyTab},
	"POST /console/keys/{id}/disable":      {disableKey, keyTab},
	"POST /console/keys/{id}/enable":       {enableKey, keyTab},
	"POST /console/keys/{id}/revoke":       {revokeKey, keysTab},
	"POST /console/keys/{id}/remove":       {removeKey, keysTab},
	"POST /console/connectors":             {createConnector, newConnectorTab},
	"POST /console/connectors/{id}/rename": {do: renameConnector},
	"POST /console/connectors/{id}/rotate": {rotateConnector, rotateConnectorTab},
	"POST /console/connectors/{id}/remove": {removeConnector, connectorsTab},

	"POST /console/edges/{id}/drain":   {drainEdge, edgesTab},
	"POST /console/edges/{id}/undrain": {undrainEdge, edgesTab},
	"POST /console/edges/{id}/remove":  {removeEdge, removeEdgeTab},

	"POST /console/settings/password":                 {changePassword, settingsTab},
	"POST /console/settings/passkeys/begin":           {do: beginPasskey},
	"POST /console/settings/passkeys":                 {do: addPasskey},
	"POST /console/settings/passkeys/{id}/remove":     {removePasskey, settingsTab},
	"POST /console/settings/sessions/end-others":      {endSessions, settingsTab},
	"POST /console/settings/sessions/{id}/end":        {endSession, settingsTab},
	"POST /console/settings/invitations":              {invite, settingsTab},
	"POST /console/settings/invitations/{id}/revoke":  {revokeInvitation, settingsTab},
	"POST /console/settings/users/{id}/role":          {setRole, settingsTab},
	"POST /console/settings/users/{id}/remove":        {removeUser, settingsTab},
	"POST /console/settings/users/{id}/recovery-link": {recoveryLink, settingsTab},
	"POST /console/settings/tokens":                   {createToken, settingsTab},
	"POST /console/settings/tokens/{id}/revoke":       {revokeToken, settingsTab},
}

// openActions need no session.
var openActions = map[string]action{
	"GET /console/sign-in":                signInPage,
	"POST /console/sign-in":               signInByPassword,
	"POST /console/sign-in/passkey/begin": beginSignInByPasskey,
	"POST /console/sign-in/passkey":       signInByPasskey,
	"POST /console/sign-out":              signOut,
	"GET /console/setup":                  linkPage(setupTab),
	"POST /console/setup":                 redeemLink(setupTab),
	"GET /console/join":                   linkPage(joinTab),
	"POST /console/join":                  redeemLink(joinTab),
	"GET /console/recover":                linkPage(recoverTab),
	"POST /console/recover":               redeemLink(recoverTab),

	"GET /console": func(v *visit) error { return v.redirect("/console/") },
	"/":            nowhere,
}

// handle registers an action. ofUsers requires a session.
func (c *Console) handle(pattern string, to route, ofUsers bool) {
	c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		v, err := c.visit(w, r)
		if err != nil {
			v.respond(manage.StatusOf(err), sentence(err.Error()), err)
			return
		}
		if v.faults = to.faults; ofUsers && !v.signedIn() {
			v.askToSignIn()
			return
		}
		if ofUsers {
			if err := v.may(pattern); err != nil {
				v.faults = nil // its page is not for this user, either
				v.fail(err)
				return
			}
			if err := v.Manage.Pace(v.ctx, r.Method); err != nil {
				v.fail(err)
				return
			}
		}
		if err := v.act(to.do); err != nil {
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
