package console

import (
	"context"
	"strings"
	"text/template"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// route is a page or an action of signed-in users.
type route struct {
	pattern string
	// operation is the operation of the management API that it performs, like "POST /keys", or ownThings. A
	// user whose role does not allow the operation is refused, and sees no links or buttons to it.
	operation string
	do        action
	errorTab  *tab // shows errors, with the user's input; nil: errors have a page of their own
	opens     *tab // nil for an action
}

// ownThings marks pages and actions that each user may use: they are about the user's own session and
// credentials, or show no data.
const ownThings = "own things"

// page returns the route that opens a tab.
func page(t *tab, operation string) route {
	return route{"GET " + t.url(), operation, t.open, t.errorTab, t}
}

// do returns the route of an action.
func do(pattern, operation string, a action, errorTab *tab) route {
	return route{pattern, operation, a, errorTab, nil}
}

// change returns the route of an action that calls one operation. Then tab to shows a notice: notice is a template for
// the operation's result. The tab also shows errors.
func change(pattern, operation string, call func(v *visit) (any, error), to *tab, notice string) route {
	text := template.Must(template.New(pattern).Parse(notice))
	return do(pattern, operation, func(v *visit) error {
		result, err := call(v)
		if !store.Committed(err) {
			return err
		}
		var b strings.Builder
		if err := text.Execute(&b, result); err != nil {
			return err
		}
		return v.done(strings.Replace(to.url(), "{id}", v.id(), 1), b.String(), err)
	}, to)
}

// byID calls an operation of a record with the id in the path.
func byID[T any](call func(s *manage.Service, ctx context.Context, id string) (T, error)) func(v *visit) (any, error) {
	return func(v *visit) (any, error) { return call(v.Manage, v.ctx, v.id()) }
}

// routes are the pages and actions of signed-in users.
var routes = []route{
	do("GET /console/{$}", ownThings, home, nil),
	do("GET /console/events/{tab}", ownThings, events, nil), // the stream checks the role for its tab
	do("GET /console/confirm", ownThings, confirm, nil),
	do("POST /console/confirm", ownThings, afterConfirmation, nil),
	do("POST /console/confirm/passkey", ownThings, confirmByPasskey, nil),
	do("POST /console/confirm/passkey/begin", ownThings, beginSignInByPasskey, nil),

	page(startTab, "POST /pairings"),
	do("POST /console/start/pairing", "POST /pairings", startPairing, startTab),
	do("POST /console/start/register", "PUT /deployments/{name}", publishOffers, startTab),
	page(pairingTab, "POST /pairings/approve"),
	page(replaceTab, "POST /pairings/approve"),
	do("POST /console/pairings/{id}/approve", "POST /pairings/approve", approvePairing, nil),
	do("POST /console/pairings/{id}/deny", "POST /pairings/deny", denyPairing, nil),

	page(homeTab, "GET /status"),
	page(modelsTab, "GET /deployments"),
	page(modelTab, "GET /deployments"),
	page(publishTab, "PUT /deployments/{name}"),
	do("GET /console/models/choices", "PUT /deployments/{name}", modelChoices, publishTab),
	page(removeModelTab, "DELETE /deployments/{name}"),
	do("POST /console/models", "PUT /deployments/{name}", publishModel, publishTab),
	do("POST /console/models/test", "POST /deployments/{name}/test", testModel, modelsTab),
	do("POST /console/models/measure", "POST /deployments/{name}/measure", measureModel, modelsTab),
	do("POST /console/models/play", "POST /keys", play, modelTab), // with a key; without one, tests must be allowed
	change("POST /console/models/remove", "DELETE /deployments/{name}", func(v *visit) (any, error) {
		return v.Manage.RemoveDeployment(v.ctx, v.r.FormValue("name"))
	}, modelsTab, "{{.Name}} is removed. New requests for it fail from now on."),

	page(keysTab, "GET /keys"),
	page(keyTab, "GET /keys/{id}"),
	do("GET /console/keys/preview", "GET /deployments", previewScope, nil),
	page(newKeyTab, "POST /keys"),
	do("POST /console/keys", "POST /keys", createKey, newKeyTab),
	page(newSetupTab, "POST /setups"),
	do("POST /console/keys/setup", "POST /setups", createSetup, newSetupTab),
	do("GET /console/keys/{id}/created", "POST /keys", keyCreated, nil),
	do("POST /console/keys/{id}/created", "POST /keys", keyCreated, nil),
	page(peopleTab, "GET /keys/{id}/people"),
	do("POST /console/keys/{id}/forget", "POST /keys/{id}/forget", forgetPerson, peopleTab),
	page(revokeKeyTab, "DELETE /keys/{id}"),
	do("POST /console/keys/{id}", "PATCH /keys/{id}", editKey, keyTab),
	do("POST /console/keys/{id}/rotate", "POST /keys/{id}/rotate", rotateKey, keyTab),
	change("POST /console/keys/{id}/disable", "POST /keys/{id}/disable", byID((*manage.Service).DisableKey), keyTab,
		"{{.Name}} is disabled; its running requests were stopped."),
	change("POST /console/keys/{id}/enable", "POST /keys/{id}/enable", byID((*manage.Service).EnableKey), keyTab,
		`{{.Name}} is enabled{{if eq .State "expired"}}, but it has expired: choose a later expiry{{end}}.`),
	change("POST /console/keys/{id}/revoke", "DELETE /keys/{id}", func(v *visit) (any, error) {
		return v.Manage.DeleteKey(v.ctx, manage.DeleteKey{Key: v.id()})
	}, keysTab,
		"{{.Name}} {{if .Already}}was revoked already{{else}}is revoked; its running requests were stopped{{end}}."),
	do("POST /console/keys/{id}/remove", "DELETE /keys/{id}", removeKey, keysTab),

	page(groupsTab, "GET /groups"),
	page(groupTab, "GET /groups/{id}"),
	page(newGroupTab, "POST /groups"),
	page(removeGroupTab, "DELETE /groups/{id}"),
	do("POST /console/groups", "POST /groups", createGroup, newGroupTab),
	do("POST /console/groups/{id}", "PATCH /groups/{id}", editGroup, groupTab),
	change("POST /console/groups/{id}/remove", "DELETE /groups/{id}", byID((*manage.Service).RemoveGroup), groupsTab,
		"{{.Name}} is removed."),

	page(connectorsTab, "GET /connectors"),
	page(connectorTab, "GET /connectors/{id}"),
	page(newConnectorTab, "POST /connectors"),
	page(rotateConnectorTab, "POST /connectors/{id}/rotate"),
	page(removeConnectorTab, "DELETE /connectors/{id}"),
	do("POST /console/connectors", "POST /connectors", createConnector, newConnectorTab),
	do("POST /console/connectors/{id}/rename", "PATCH /connectors/{id}", renameConnector, nil),
	do("POST /console/connectors/{id}/rotate", "POST /connectors/{id}/rotate", rotateConnector, rotateConnectorTab),
	change("POST /console/connectors/{id}/remove", "DELETE /connectors/{id}", byID((*manage.Service).RemoveConnector),
		connectorsTab, "{{.Name}} is removed. Its tunnel is closed, and its token is invalid."),

	page(usageTab, "GET /usage"),
	page(activityTab, "GET /activity"),
	page(requestTab, "GET /activity"),
	page(auditTab, "GET /audit"),

	page(edgesTab, "GET /edges"),
	page(removeEdgeTab, "DELETE /edges/{name}"),
	change("POST /console/edges/{id}/drain", "POST /edges/{name}/drain", byID((*manage.Service).DrainEdge), edgesTab,
		"{{.Name}} drains. It still serves what reaches it."),
	change("POST /console/edges/{id}/undrain", "POST /edges/{name}/undrain", byID((*manage.Service).UndrainEdge), edgesTab,
		"{{.Name}} is ready again."),
	do("POST /console/edges/{id}/remove", "DELETE /edges/{name}", removeEdge, removeEdgeTab),

	page(settingsTab, ownThings),
	do("POST /console/settings/password", ownThings, changePassword, settingsTab),
	do("POST /console/settings/passkeys/begin", ownThings, beginPasskey, nil),
	do("POST /console/settings/passkeys", ownThings, addPasskey, nil),
	do("POST /console/settings/identities", ownThings, linkIdentity, settingsTab),
	do("POST /console/settings/identities/unlink", ownThings, unlinkIdentity, settingsTab),
	page(removePasskeyTab, ownThings),
	do("POST /console/settings/passkeys/{id}/remove", ownThings, removePasskey, settingsTab),
	change("POST /console/settings/sessions/end-others", ownThings, func(v *visit) (any, error) {
		return v.Manage.RevokeSessions(v.ctx)
	}, settingsTab, "{{with .Ended}}Your other sessions are signed out: {{.}}{{else}}You have no other sessions{{end}}."),
	do("POST /console/settings/sessions/{id}/end", ownThings, endSession, settingsTab),
	do("POST /console/settings/invitations", "POST /invitations", invite, settingsTab),
	change("POST /console/settings/invitations/{id}/revoke", "DELETE /invitations/{id}",
		byID((*manage.Service).RevokeInvitation), settingsTab, "The invitation is revoked."),
	change("POST /console/settings/users/{id}/role", "PATCH /users/{id}", func(v *visit) (any, error) {
		return v.Manage.SetUser(v.ctx, manage.SetUser{User: v.id(), Role: v.typed("role")})
	}, settingsTab, `{{.Name}} is {{if eq .Role "admin"}}an{{else}}a{{end}} {{.Role}} now.`),
	page(removeUserTab, "DELETE /users/{id}"),
	do("POST /console/settings/users/{id}/remove", "DELETE /users/{id}", removeUser, removeUserTab),
	do("POST /console/settings/users/{id}/recovery-link", "POST /users/{id}/recovery-link", recoveryLink, settingsTab),
	do("POST /console/settings/account", "PATCH /accounts/{id}", setAccount, settingsTab),
	do("POST /console/settings/tokens", "POST /tokens", createToken, settingsTab),
	do("POST /console/settings/webhooks/test", "POST /webhooks/test", testWebhooks, settingsTab),
	page(revokeTokenTab, "DELETE /tokens/{id}"),
	change("POST /console/settings/tokens/{id}/revoke", "DELETE /tokens/{id}", byID((*manage.Service).RevokeToken),
		settingsTab, "The management token {{.Name}} is revoked."),
}

// openActions need no session.
var openActions = map[string]action{
	"GET /console/sign-in":                signInPage,
	"POST /console/sign-in":               signInByPassword,
	"POST /console/sign-in/passkey/begin": beginSignInByPasskey,
	"POST /console/sign-in/passkey":       signInByPasskey,
	"POST /console/sign-out":              signOut,
	"GET /console/sign-in/oidc/{issuer}":  startIssuer,
	"GET /console/setup":                  linkPage(setupTab),
	"POST /console/setup":                 redeemLink(setupTab),
	"GET /console/join":                   linkPage(joinTab),
	"POST /console/join":                  redeemLink(joinTab),
	"GET /console/recover":                linkPage(recoverTab),
	"POST /console/recover":               redeemLink(recoverTab),

	"GET /console/sign-in/oidc/{issuer}" + callbackPath: finishIssuer,

	"GET /console/connect": connectTab.open,

	"GET /console": func(v *visit) error { return v.redirect("/console/") },
	"/":            nowhere,
}
