// Package console is the web console of a gateway: the pages under /console/,
// with which its users pair connectors, register models and hand out keys, and
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
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/connector/logs"
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

	templates *template.Template
	assets    assets
	tabs      map[string]*tab // that have a stream
	streams   streams
	origins   *http.CrossOriginProtection
	mux       *http.ServeMux
	api       http.Handler

	refusals logs.Sampler[netip.Prefix] // of requests from other origins
}

// New returns the console for o.
func New(o Options) (*Console, error) {
	c := &Console{
		Options: o, tabs: make(map[string]*tab), origins: http.NewCrossOriginProtection(), mux: http.NewServeMux(),
		api: o.Manage.Handler("/console/api"),
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

// pages are the tabs that have a URL, by their paths below /console/.
var pages = map[string]*tab{
	"start":                         startTab,
	"models":                        modelsTab,
	"models/new":                    registerTab,
	"models/show":                   modelTab,
	"models/remove":                 removeModelTab,
	"keys":                          keysTab,
	"keys/new":                      newKeyTab,
	"keys/{id}/revoke":              revokeKeyTab,
	"connectors":                    connectorsTab,
	"connectors/new":                newConnectorTab,
	"connectors/{id}/rotate":        rotateConnectorTab,
	"connectors/{id}/remove":        removeConnectorTab,
	"activity":                      activityTab,
	"settings":                      settingsTab,
	"settings/passkeys/{id}/remove": removePasskeyTab,
	"settings/users/{id}/remove":    removeUserTab,
	"settings/tokens/{id}/revoke":   revokeTokenTab,
}

// actions are the other actions of signed-in users.
func (c *Console) actions() map[string]action {
	return map[string]action{
		"GET /console/{$}":                    c.home,
		"GET /console/events/{tab}":           c.events,
		"GET /console/pairings/{id}":          c.answer(startTab, pairingTab, pairingData),
		"GET /console/pairings/{id}/replace":  c.answer(pairingTab, replaceTab, replaceData),
		"GET /console/keys/preview":           c.previewScope,
		"GET /console/models/choices":         c.modelChoices,
		"GET /console/confirm":                c.confirm,
		"POST /console/confirm":               c.confirmed,
		"POST /console/confirm/passkey":       c.confirmByPasskey,
		"POST /console/confirm/passkey/begin": c.beginSignInByPasskey,

		"POST /console/start/pairing":         c.form(startTab, startPath+"#pair", startPairing),
		"POST /console/start/register":        c.form(startTab, startPath, registerOffer),
		"POST /console/pairings/{id}/approve": c.approvePairing,
		"POST /console/pairings/{id}/deny":    c.denyPairing,

		"POST /console/models":                 c.registerModel,
		"POST /console/models/test":            c.testModel,
		"POST /console/models/remove":          c.form(modelsTab, modelsPath, removeModel),
		"POST /console/keys":                   c.answer(newKeyTab, keyCreatedTab, createKey),
		"POST /console/keys/{id}/revoke":       c.form(keysTab, keysPath, revokeKey),
		"POST /console/keys/{id}/remove":       c.form(keysTab, keysPath+"?show=revoked", removeKey),
		"POST /console/connectors":             c.answer(newConnectorTab, connectorTokenTab, createConnector),
		"POST /console/connectors/{id}/rotate": c.rotateConnector,
		"POST /console/connectors/{id}/remove": c.form(connectorsTab, connectorsPath, removeConnector),

		"POST /console/settings/password":                 c.form(settingsTab, settingsPath, changePassword),
		"POST /console/settings/passkeys/begin":           c.beginPasskey,
		"POST /console/settings/passkeys":                 c.addPasskey,
		"POST /console/settings/passkeys/{id}/remove":     c.form(settingsTab, settingsPath, removePasskey),
		"POST /console/settings/sessions/end-others":      c.form(settingsTab, settingsPath, endSessions),
		"POST /console/settings/sessions/{id}/end":        c.endSession,
		"POST /console/settings/invitations":              c.answer(settingsTab, invitationTab, invite),
		"POST /console/settings/invitations/{id}/revoke":  c.form(settingsTab, settingsPath, revokeInvitation),
		"POST /console/settings/users/{id}/remove":        c.form(settingsTab, settingsPath, removeUser),
		"POST /console/settings/users/{id}/recovery-link": c.answer(settingsTab, recoveryTab, recoveryLink),
		"POST /console/settings/tokens":                   c.answer(settingsTab, tokenTab, createToken),
		"POST /console/settings/tokens/{id}/revoke":       c.form(settingsTab, settingsPath, revokeToken),
	}
}

// open returns the actions that need no session.
func (c *Console) open() map[string]action {
	return map[string]action{
		"GET /console/sign-in":                c.signInPage,
		"POST /console/sign-in":               c.signInByPassword,
		"POST /console/sign-in/passkey/begin": c.beginSignInByPasskey,
		"POST /console/sign-in/passkey":       c.signInByPasskey,
		"POST /console/sign-out":              c.signOut,
		"GET /console/setup":                  c.linkPage(setupLink),
		"POST /console/setup":                 c.redeemLink(setupLink),
		"GET /console/join":                   c.linkPage(joinLink),
		"POST /console/join":                  c.redeemLink(joinLink),
		"GET /console/recover":                c.linkPage(recoverLink),
		"POST /console/recover":               c.redeemLink(recoverLink),

		"GET /console": func(w http.ResponseWriter, v *visit) error { return v.redirect(w, "/console/") },
		"/":            c.nowhere,
	}
}

// routes registers all actions.
func (c *Console) routes() {
	for path, t := range pages {
		c.handle("GET /console/"+path, c.page(t), true)
		if t.live != nil {
			c.tabs[t.name] = t
		}
	}
	for pattern, a := range c.actions() {
		c.handle(pattern, a, true)
	}
	for pattern, a := range c.open() {
		c.handle(pattern, a, false)
	}
	c.mux.Handle("GET /console/static/{version}/{name}", c.assets)
	c.mux.HandleFunc("/console/api/", c.serveAPI)
}

// handle registers an action. ofUsers requires a session.
func (c *Console) handle(pattern string, a action, ofUsers bool) {
	c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		v := c.visit(r)
		if ofUsers && !v.signedIn() {
			c.askToSignIn(w, r)
			return
		}
		if err := c.act(w, v, a); err != nil {
			c.fail(w, v, err)
		}
	})
}

// home redirects to the Setup tab, or to the models once the setup is done.
func (c *Console) home(w http.ResponseWriter, v *visit) error {
	if done, err := v.Manage.Checklist(v.ctx); err == nil && done.Connector && done.Model && done.Key && done.Request {
		return v.redirect(w, modelsPath)
	}
	return v.redirect(w, startPath)
}
