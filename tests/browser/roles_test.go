package browser

import (
	"net/http"
	"strings"
	"testing"
)

// An admin invites a member, who has keys, and then makes it a viewer, who cannot change anything.
func testRoles(t *testing.T, r *rig) {
	rosa := r.newUser("roles", "rosa")
	rosa.Open("/console/settings")
	rosa.Choose("#invited-role", "member")
	rosa.Press("Invite someone")
	rosa.Sees("with the role member")
	mia := r.join(strings.TrimSpace(rosa.Text("#shown-once-secret")), "mia")
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
	mia.Sees("Members cannot do this")
	mia.Look("not-allowed")
	r.paired(rosa, "roles")
	rosa.Sees("3 of 4 done") // with the key of the member
	mia.Open("/console/models/show?name=scripted")
	mia.Fill("#prompt", "Hello")
	mia.Press("Send")
	mia.Sees("first token after")
	mia.Look("playground-member")
	mia.Open("/console/activity")
	mia.Sees("playground")

	rosa.Open("/console/settings")
	rosa.Sees("mia")
	rosa.Look("settings-roles")
	r.Manage(t, http.MethodPatch, "/users/mia", map[string]string{"role": "viewer", "account": "roles"}, nil)
	mia.Open("/console/keys")
	mia.Sees("mias")
	mia.Look("keys-viewer")
	mia.Open("/console/audit")
	mia.Sees("changed the role of")
}
