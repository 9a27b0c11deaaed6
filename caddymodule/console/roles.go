package console

import (
	"html/template"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// ownThings are pages and actions for every user: about the user's own session and credentials, or
// without data.
const ownThings = ""

// needs has the route of the management API that a page or an action of signed-in users performs. A
// user whose role does not allow the route is refused, and does not see links and buttons to it.
var needs = map[string]string{
	"GET /console/{$}":                    ownThings,
	"GET /console/events/{tab}":           ownThings, // it looks at the tab
	"GET /console/confirm":                ownThings,
	"POST /console/confirm":               ownThings,
	"POST /console/confirm/passkey":       ownThings,
	"POST /console/confirm/passkey/begin": ownThings,

	"GET /console/start":                  "POST /pairings",
	"POST /console/start/pairing":         "POST /pairings",
	"POST /console/start/register":        "PUT /deployments/{name}",
	"GET /console/pairings/{id}":          "POST /pairings/approve",
	"GET /console/pairings/{id}/replace":  "POST /pairings/approve",
	"POST /console/pairings/{id}/approve": "POST /pairings/approve",
	"POST /console/pairings/{id}/deny":    "POST /pairings/deny",

	"GET /console/home":               "GET /status",
	"GET /console/models":             "GET /deployments",
	"GET /console/models/show":        "GET /deployments",
	"GET /console/models/new":         "PUT /deployments/{name}",
	"GET /console/models/choices":     "PUT /deployments/{name}",
	"GET /console/models/remove":      "DELETE /deployments/{name}",
	"POST /console/models":            "PUT /deployments/{name}",
	"POST /console/models/test":       "POST /deployments/{name}/test",
	"POST /console/models/play":       "POST /deployments/{name}/test",
	"POST /console/models/remove":     "DELETE /deployments/{name}",
	"GET /console/keys":               "GET /keys",
	"GET /console/keys/{id}":          "GET /keys/{id}",
	"GET /console/keys/preview":       "GET /deployments",
	"GET /console/keys/new":           "POST /keys",
	"POST /console/keys":              "POST /keys",
	"GET /console/keys/{id}/created":  "POST /keys",
	"GET /console/keys/{id}/revoke":   "DELETE /keys/{id}",
	"POST /console/keys/{id}":         "PATCH /keys/{id}",
	"POST /console/keys/{id}/rotate":  "POST /keys/{id}/rotate",
	"POST /console/keys/{id}/disable": "POST /keys/{id}/disable",
	"POST /console/keys/{id}/enable":  "POST /keys/{id}/enable",
	"POST /console/keys/{id}/revoke":  "DELETE /keys/{id}",
	"POST /console/keys/{id}/remove":  "DELETE /keys/{id}",

	"GET /console/connectors":              "GET /connectors",
	"GET /console/connectors/show":         "GET /connectors/{id}",
	"GET /console/connectors/new":          "POST /connectors",
	"GET /console/connectors/{id}/rotate":  "POST /connectors/{id}/rotate",
	"GET /console/connectors/{id}/remove":  "DELETE /connectors/{id}",
	"POST /console/connectors":             "POST /connectors",
	"POST /console/connectors/{id}/rename": "PATCH /connectors/{id}",
	"POST /console/connectors/{id}/rotate": "POST /connectors/{id}/rotate",
	"POST /console/connectors/{id}/remove": "DELETE /connectors/{id}",

	"GET /console/usage":               "GET /usage",
	"GET /console/activity/{id}":       "GET /activity",
	"GET /console/activity":            "GET /activity",
	"GET /console/audit":               "GET /audit",
	"GET /console/edges":               "GET /edges",
	"GET /console/edges/{id}/remove":   "DELETE /edges/{name}",
	"POST /console/edges/{id}/drain":   "POST /edges/{name}/drain",
	"POST /console/edges/{id}/undrain": "POST /edges/{name}/undrain",
	"POST /console/edges/{id}/remove":  "DELETE /edges/{name}",

	"GET /console/settings":                           ownThings,
	"POST /console/settings/password":                 ownThings,
	"POST /console/settings/passkeys/begin":           ownThings,
	"POST /console/settings/passkeys":                 ownThings,
	"GET /console/settings/passkeys/{id}/remove":      ownThings,
	"POST /console/settings/passkeys/{id}/remove":     ownThings,
	"POST /console/settings/sessions/end-others":      ownThings,
	"POST /console/settings/sessions/{id}/end":        ownThings,
	"POST /console/settings/invitations":              "POST /invitations",
	"POST /console/settings/invitations/{id}/revoke":  "DELETE /invitations/{id}",
	"POST /console/settings/users/{id}/role":          "PATCH /users/{id}",
	"GET /console/settings/users/{id}/remove":         "DELETE /users/{id}",
	"POST /console/settings/users/{id}/remove":        "DELETE /users/{id}",
	"POST /console/settings/users/{id}/recovery-link": "POST /users/{id}/recovery-link",
	"POST /console/settings/tokens":                   "POST /tokens",
	"GET /console/settings/tokens/{id}/revoke":        "DELETE /tokens/{id}",
	"POST /console/settings/tokens/{id}/revoke":       "DELETE /tokens/{id}",
}

// may returns an error unless the user's role allows a page or an action. One that is not in needs is
// for admins.
func (v *visit) may(pattern string) error {
	route, known := needs[pattern]
	switch {
	case !known && v.User.Role != store.RoleAdmin:
		return store.Errorf(manage.ErrForbidden, "only admins may do this")
	case !known || route == ownThings:
		return nil
	}
	return v.Manage.May(v.ctx, route)
}

// roleTexts describe the roles.
var roleTexts = map[store.Role]string{
	store.RoleAdmin:  "Admin: may do everything",
	store.RoleMember: "Member: creates keys of its own, and sees their use and the models",
	store.RoleViewer: "Viewer: sees everything but secrets, and changes nothing",
}

// loadTemplatesOf returns the templates for users of each role. In them, may reports whether the role
// allows a route of the management API.
func loadTemplatesOf(a assets, m *manage.Service) map[store.Role]*template.Template {
	all := make(map[store.Role]*template.Template)
	for _, role := range append(store.Roles(), "") { // "" is without a session
		all[role] = loadTemplates(a, func(route string) bool { return m.RoleMay(role, route) })
	}
	return all
}
