package console

import (
	"net/http"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// peopleRoutes are those of Settings that are about all users of the account.
func (c *Console) peopleRoutes(handle func(pattern string, a action)) {
	handle("POST /console/settings/invitations", c.invite)
	handle("POST /console/settings/invitations/{id}/revoke", c.revokeInvitation)
	handle("GET /console/settings/users/{id}/remove", c.page(removeUserTab))
	handle("POST /console/settings/users/{id}/remove", c.removeUser)
	handle("POST /console/settings/users/{id}/recovery-link", c.recoveryLink)
}

// shownOnceTab shows a link or a token, this once.
func shownOnceTab(title string) *tab { return &tab{name: "shown-once", title: title} }

type shownOncePage struct {
	Title, Text, What, Secret string
	Until                     time.Time // zero: for good
	Example                   string    // a line that uses it
}

func (c *Console) invite(w http.ResponseWriter, v *visit) error {
	link, err := v.manage.Invite(v.ctx, v.Account)
	if err != nil {
		return v.fault(settingsTab(), err)
	}
	return c.show(w, v, shownOnceTab("Invitation"), http.StatusOK, shownOncePage{
		Title: "Invitation", What: "link", Secret: link.URL, Until: link.ExpiresAt,
		Text: "Send this link to one person. It works once: whoever opens it first becomes a user of this account and can do all that you can.",
	})
}

func (c *Console) revokeInvitation(w http.ResponseWriter, v *visit) error {
	if _, err := v.manage.RevokeInvitation(v.ctx, v.Account, v.r.PathValue("id")); err != nil {
		return v.fault(settingsTab(), err)
	}
	return c.done(w, v, settingsPath, "The invitation is of no use any more.")
}

func findUser(v *visit) (manage.User, error) {
	users, err := v.manage.Users(v.Account)
	if err != nil {
		return manage.User{}, err
	}
	i := slices.IndexFunc(users, func(u manage.User) bool { return u.ID == v.r.PathValue("id") })
	if i < 0 {
		return manage.User{}, notThere("There is no such user any more.")
	}
	return users[i], nil
}

func removeUserTab() *tab {
	return confirmTab("Remove a user", func(v *visit) (*confirmPage, error) {
		u, err := findUser(v)
		return &confirmPage{
			Title: "Remove " + u.Name + "?", Button: "Remove " + u.Name, Keep: "Keep the user",
			Text: "Sessions, passkeys, management tokens and invitations of this user end at once. Keys, models and connectors belong to the account and stay.",
		}, err
	})
}

func (c *Console) removeUser(w http.ResponseWriter, v *visit) error {
	removed, err := v.manage.RemoveUser(v.ctx, v.Account, v.r.PathValue("id"))
	if err != nil {
		return v.fault(settingsTab(), err)
	}
	return c.done(w, v, settingsPath, removed.Name+" is removed.")
}

func (c *Console) recoveryLink(w http.ResponseWriter, v *visit) error {
	u, err := findUser(v)
	if err != nil {
		return v.fault(settingsTab(), err)
	}
	link, err := v.manage.RecoveryLink(v.ctx, v.Account, u.ID)
	if err != nil {
		return v.fault(settingsTab(), err)
	}
	return c.show(w, v, shownOnceTab("New password for "+u.Name), http.StatusOK, shownOncePage{
		Title: "New password for " + u.Name, What: "link", Secret: link.URL, Until: link.ExpiresAt,
		Text: "Whoever opens this link sets a new password for " + u.Name + ", once. The present one works until then.",
	})
}
