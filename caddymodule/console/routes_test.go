package console

import (
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
)

// After an action, the next page says what has happened. Changes that need no question are made at once.
func TestNotices(t *testing.T) {
	h := newHouse(t)
	b, grace := h.in(h.user(store0, "ada")), h.user(store0, "grace")
	con, _, err := h.store.CreateConnector(t.Context(), store0, "box")
	must(t, err)
	d := store.Deployment{Account: store0, Name: "org/a+b", Connectors: []string{con.ID}}
	must(t, errOf(h.store.SetDeployment(t.Context(), d)))
	l := store.Link{Kind: store.LinkInvitation, Account: store0, Role: store.RoleViewer}
	invitation, _, err := h.store.CreateLink(t.Context(), l, store.SessionIdle)
	must(t, err)
	key, _, err := h.store.CreateKey(t.Context(), store0, store.KeyFields{Name: "laptop", Scope: "*"})
	must(t, err)
	settings, keyPage := "/console/settings", "/console/keys/"+key.ID
	for _, c := range []struct {
		path, to, notice string
		form             []string
	}{
		{settings + "/sessions/end-others", settings, "You have no other sessions.", nil},
		{settings + "/invitations/" + invitation.ID + "/revoke", settings, "The invitation is revoked.", nil},
		{settings + "/users/" + grace.ID + "/role", settings, "grace is a member now.", []string{"role", "member"}},
		{settings + "/users/" + grace.ID + "/role", settings, "grace is an admin now.", []string{"role", "admin"}},
		{settings + "/users/" + grace.ID + "/remove", settings, "grace is removed.", nil},
		{keyPage + "/disable", keyPage, "laptop is disabled; its running requests were stopped.", nil},
		{keyPage + "/enable", keyPage, "laptop is enabled.", nil},
		{keyPage + "/revoke", "/console/keys", "laptop is revoked; its running requests were stopped.", nil},
		{keyPage + "/revoke", "/console/keys", "laptop was revoked already.", nil},
		{
			"/console/models/remove?name=org%2Fa%2Bb", "/console/models",
			"org/a+b is removed. New requests for it fail from now on.", nil,
		},
		{
			"/console/connectors/" + con.ID + "/remove", "/console/connectors",
			"box is removed. Its tunnel is closed, and its token is invalid.", nil,
		},
	} {
		if c.to == "/console/models" {
			has(t, b.page(c.path), "Remove org/a&#43;b?", `href="/console/models/show?name=org%2Fa%2Bb"`)
		}
		b.goes(b.post(c.path, c.form...), c.to)
		has(t, b.page(c.to), c.notice)
	}
}
