package console

import (
	"html/template"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// may returns an error unless the user's role allows the route with a pattern.
func (v *visit) may(pattern string) error {
	if v.operations[pattern] == ownThings {
		return nil
	}
	return v.Manage.May(v.ctx, v.operations[pattern])
}

// roleTexts describe the roles.
var roleTexts = map[store.Role]string{
	store.RoleAdmin:  "Admin: may do everything",
	store.RoleMember: "Member: creates keys of its own, tries models with them, and sees their use",
	store.RoleViewer: "Viewer: sees everything but secrets, and changes nothing",
}

// loadTemplates returns the templates for users of each role. In them, may reports whether the role
// allows an operation of the management API.
func (c *Console) loadTemplates(a assets) map[store.Role]*template.Template {
	all := make(map[store.Role]*template.Template)
	for _, role := range append(store.Roles(), "") { // "" is without a session
		all[role] = c.loadRoleTemplates(a, func(operation string) bool { return manage.RoleMay(role, operation) })
	}
	return all
}
