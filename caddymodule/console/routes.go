package console

// route is a page or an action of signed-in users.
type route struct {
	pattern string
	// operation is the operation of the management API that it performs, like "POST /keys", or ownThings. A
	// user whose role does not allow the operation is refused, and sees no links or buttons to it.
	operation string
	do        action
	faults    *tab // shows errors, with the user's input; nil: errors have a page of their own
	opens     *tab // nil for an action
}

// ownThings marks pages and actions that each user may use: they are about the user's own session and
// credentials, or have no data.
const ownThings = "own things"

// page returns the route that opens a tab.
func page(t *tab, operation string) route {
	return route{"GET " + t.url(), operation, t.open, t.faults, t}
}

// do returns the route of an action.
func do(pattern, operation string, a action, faults *tab) route {
	return route{pattern, operation, a, faults, nil}
}

// routes are the pages and actions of signed-in users.
var routes = []route{
	do("GET /console/{$}", ownThings, home, nil),
	do("GET /console/events/{tab}", ownThings, events, nil), // the stream checks the role for its tab
	do("GET /console/confirm", ownThings, confirm, nil),
	do("POST /console/confirm", ownThings, confirmed, nil),
	do("POST /console/confirm/passkey", ownThings, confirmByPasskey, nil),
	do("POST /console/confirm/passkey/begin", ownThings, beginSignInByPasskey, nil),

	page(startTab, "POST /pairings"),
	do("POST /console/start/pairing", "POST /pairings", startPairing, startTab),
	do("POST /console/start/register", "PUT /deployments/{name}", publishOffer, startTab),
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
	do("POST /console/models/remove", "DELETE /deployments/{name}", removeModel, modelsTab),

	page(keysTab, "GET /keys"),
	page(keyTab, "GET /keys/{id}"),
	do("GET /console/keys/preview", "GET /deployments", previewScope, nil),
	page(newKeyTab, "POST /keys"),
	do("POST /console/keys", "POST /keys", createKey, newKeyTab),
	page(newSetupTab, "POST /setups"),
	do("POST /console/keys/setup", "POST /setups", createSetup, newSetupTab),
	do("GET /console/keys/{id}/created", "POST /keys", keyCreated, nil),
	page(revokeKeyTab, "DELETE /keys/{id}"),
	do("POST /console/keys/{id}", "PATCH /keys/{id}", editKey, keyTab),
	do("POST /console/keys/{id}/rotate", "POST /keys/{id}/rotate", rotateKey, keyTab),
	do("POST /console/keys/{id}/disable", "POST /keys/{id}/disable", disableKey, keyTab),
	do("POST /console/keys/{id}/enable", "POST /keys/{id}/enable", enableKey, keyTab),
	do("POST /console/keys/{id}/revoke", "DELETE /keys/{id}", revokeKey, keysTab),
	do("POST /console/keys/{id}/remove", "DELETE /keys/{id}", removeKey, keysTab),

	page(connectorsTab, "GET /connectors"),
	page(connectorTab, "GET /connectors/{id}"),
	page(newConnectorTab, "POST /connectors"),
	page(rotateConnectorTab, "POST /connectors/{id}/rotate"),
	page(removeConnectorTab, "DELETE /connectors/{id}"),
	do("POST /console/connectors", "POST /connectors", createConnector, newConnectorTab),
	do("POST /console/connectors/{id}/rename", "PATCH /connectors/{id}", renameConnector, nil),
	do("POST /console/connectors/{id}/rotate", "POST /connectors/{id}/rotate", rotateConnector, rotateConnectorTab),
	do("POST /console/connectors/{id}/remove", "DELETE /connectors/{id}", removeConnector, connectorsTab),

	page(usageTab, "GET /usage"),
	page(activityTab, "GET /activity"),
	page(requestTab, "GET /activity"),
	page(auditTab, "GET /audit"),

	page(edgesTab, "GET /edges"),
	page(removeEdgeTab, "DELETE /edges/{name}"),
	do("POST /console/edges/{id}/drain", "POST /edges/{name}/drain", drainEdge, edgesTab),
	do("POST /console/edges/{id}/undrain", "POST /edges/{name}/undrain", undrainEdge, edgesTab),
	do("POST /console/edges/{id}/remove", "DELETE /edges/{name}", removeEdge, removeEdgeTab),

	page(settingsTab, ownThings),
	do("POST /console/settings/password", ownThings, changePassword, settingsTab),
	do("POST /console/settings/passkeys/begin", ownThings, beginPasskey, nil),
	do("POST /console/settings/passkeys", ownThings, addPasskey, nil),
	page(removePasskeyTab, ownThings),
	do("POST /console/settings/passkeys/{id}/remove", ownThings, removePasskey, settingsTab),
	do("POST /console/settings/sessions/end-others", ownThings, endSessions, settingsTab),
	do("POST /console/settings/sessions/{id}/end", ownThings, endSession, settingsTab),
	do("POST /console/settings/invitations", "POST /invitations", invite, settingsTab),
	do("POST /console/settings/invitations/{id}/revoke", "DELETE /invitations/{id}", revokeInvitation, settingsTab),
	do("POST /console/settings/users/{id}/role", "PATCH /users/{id}", setRole, settingsTab),
	page(removeUserTab, "DELETE /users/{id}"),
	do("POST /console/settings/users/{id}/remove", "DELETE /users/{id}", removeUser, settingsTab),
	do("POST /console/settings/users/{id}/recovery-link", "POST /users/{id}/recovery-link", recoveryLink, settingsTab),
	do("POST /console/settings/tokens", "POST /tokens", createToken, settingsTab),
	page(revokeTokenTab, "DELETE /tokens/{id}"),
	do("POST /console/settings/tokens/{id}/revoke", "DELETE /tokens/{id}", revokeToken, settingsTab),
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

	"GET /console/connect": connectTab.open,

	"GET /console": func(v *visit) error { return v.redirect("/console/") },
	"/":            nowhere,
}
