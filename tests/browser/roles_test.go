package browser

import (
	"net/http"
	"strings"
	"testing"
)

// An admin invites a member, who has keys of its own, and then makes it a viewer, who changes nothing.
func testRoles(t *testing.T, r *rig) {
	ada := r.newUser("roles", "ada")
	ada.Open("/console/settings")
	ada.Choose("#invited-role", "member")
	ada.Press("Invite someone")
	ada.Sees("with the role member")
	mia := r.join(strings.TrimSpace(ada.Text("#shown-once-secret")), "mia")
	mia.Arrives("/console/models")
	mia.Sees("No models yet")
	r.key(mia, "mias", "*")
	mia.Open("/console/keys")
	mia.Sees("mias")
	mia.Look("keys-member")
	mia.Open("/console/settings")
	mia.Look("settings-member")
	mia.Expect("status of 403")
	mia.Open("/console/connectors")
	mia.Sees("does not allow this")
	mia.Look("not-allowed")

	ada.Open("/console/settings")
	ada.Sees("mia")
	ada.Look("settings-roles")
	r.Manage(t, http.MethodPatch, "/users/mia", map[string]string{"role": "viewer", "account": "roles"}, nil)
	mia.Open("/console/keys")
	mia.Sees("mias")
	mia.Look("keys-viewer")
	mia.Open("/console/audit")
	mia.Sees("user.set")
}
