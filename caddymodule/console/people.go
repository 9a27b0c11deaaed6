package console

import (
	"fmt"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var (
	invitationTab = &tab{name: "shown-once", title: "Invitation"}
	recoveryTab   = &tab{name: "shown-once", title: "New password"}
	removeUserTab = confirmTab("Remove a user", func(v *visit) (*confirmPage, error) {
		u, err := findUser(v)
		return &confirmPage{
			Title: "Remove " + u.Name + "?", Button: "Remove " + u.Name, Keep: "Keep the user",
			Text: "Sessions, passkeys, management tokens and invitations of this user end at once. Keys, models and connectors belong to the account and stay.",
		}, err
	})
)

// shownOncePage shows a link or a token, this once.
type shownOncePage struct {
	Title, Text, What, Secret string
	Until                     time.Time // zero: for good
	Example                   string    // a line that uses it
}

func invite(v *visit) (any, error) {
	link, err := v.Manage.Invite(v.ctx)
	return shownOncePage{
		Title: "Invitation", What: "link", Secret: link.URL, Until: link.ExpiresAt,
		Text: "Send this link to one person. It works once: the first who opens it becomes a user of this account and can do all that you can.",
	}, err
}

func revokeInvitation(v *visit) (notice string, err error) {
	_, err = v.Manage.RevokeInvitation(v.ctx, v.r.PathValue("id"))
	return "The invitation is revoked.", err
}

func findUser(v *visit) (manage.User, error) {
	return find(v, v.Manage.Users, func(u manage.User) bool { return u.ID == v.r.PathValue("id") }, "This user no longer exists.")
}

func removeUser(v *visit) (notice string, err error) {
	removed, err := v.Manage.RemoveUser(v.ctx, v.r.PathValue("id"))
	return removed.Name + " is removed.", err
}

func recoveryLink(v *visit) (any, error) {
	u, err := findUser(v)
	if err != nil {
		return nil, err
	}
	link, err := v.Manage.RecoveryLink(v.ctx, u.ID)
	return shownOncePage{
		Title: "New password for " + u.Name, What: "link", Secret: link.URL, Until: link.ExpiresAt,
		Text: fmt.Sprintf("The first who opens this link sets a new password for %s. The present one works until then.", u.Name),
	}, err
}
