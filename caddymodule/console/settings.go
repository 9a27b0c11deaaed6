package console

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

const settingsPath = "/console/settings"

// settingsTab manages the users of the account, their credentials, and the
// management tokens.
var settingsTab = &tab{
	name: "settings", title: "Settings", data: settingsData,
	live: []string{"settings-sessions", "settings-users", "settings-invitations", "settings-tokens"}, every: time.Minute,
}

type settingsPage struct {
	User        string // id of the current user
	Now         time.Time
	Passkeys    []store.Passkey
	PasskeyName string // typed before the confirmation
	Sessions    []manage.Session
	Users       []manage.User
	Invitations []manage.Link
	Tokens      []manage.Token
	NewToken    tokenForm
}

// sessionMethods describes the sign-in methods of sessions.
var sessionMethods = map[string]string{
	signin.MethodPassword: "by password", signin.MethodPasskey: "by passkey", signin.MethodLink: "by one-time link",
}

func settingsData(v *visit) (any, error) {
	p := &settingsPage{
		User: v.User.ID, Now: v.Now(), Passkeys: v.SignIn.Passkeys(v.User.ID), PasskeyName: v.r.URL.Query().Get("passkey"), NewToken: newTokenForm(v),
	}
	var err error
	if p.Sessions, err = v.Manage.Sessions(v.ctx); err != nil {
		return nil, err
	}
	slices.SortStableFunc(p.Sessions, func(a, b manage.Session) int {
		switch {
		case a.Current:
			return -1
		case b.Current:
			return 1
		}
		return b.SeenAt.Compare(a.SeenAt)
	})
	if p.Users, err = v.Manage.Users(v.ctx); err != nil {
		return nil, err
	}
	if p.Invitations, err = v.Manage.Invitations(v.ctx); err != nil {
		return nil, err
	}
	p.Tokens, err = v.Manage.Tokens(v.ctx)
	return p, err
}

func passkeyID(k store.Passkey) string { return base64.RawURLEncoding.EncodeToString(k.ID) }

// browserOf returns a short name for a User-Agent. The order matters: most browsers
// also claim to be others.
func browserOf(agent string) string {
	browser := firstIn(agent, "Edg/", "Edge", "OPR/", "Opera", "Firefox/", "Firefox", "FxiOS/", "Firefox",
		"CriOS/", "Chrome", "Chrome/", "Chrome", "Safari/", "Safari", "curl/", "curl")
	system := firstIn(agent, "iPhone", "iPhone", "iPad", "iPad", "Android", "Android", "Windows", "Windows",
		"Mac OS X", "macOS", "CrOS", "ChromeOS", "Linux", "Linux")
	if browser != "" && system != "" {
		return browser + " on " + system
	}
	return cmp.Or(browser, system, "Unknown browser")
}

// firstIn returns the name after the first mark that agent has.
func firstIn(agent string, marks ...string) string {
	for pair := range slices.Chunk(marks, 2) {
		if strings.Contains(agent, pair[0]) {
			return pair[1]
		}
	}
	return ""
}

func changePassword(v *visit) (notice string, err error) {
	err = v.SignIn.ChangePassword(v.ctx, v.User.ID, v.Session.ID, v.r.PostFormValue("password"), v.r.PostFormValue("new-password"))
	return "The new password is set. Your other sessions are signed out.", err
}

func (c *Console) beginPasskey(w http.ResponseWriter, v *visit) error {
	if err := v.Manage.Confirmed(v.ctx); err != nil {
		return err
	}
	options, ceremony, err := c.SignIn.BeginPasskey(v.ctx, v.User, origin(v.r))
	if err != nil {
		return err
	}
	manage.WriteJSON(w, http.StatusOK, ceremonyOptions{options, ceremony})
	return nil
}

func (c *Console) addPasskey(w http.ResponseWriter, v *visit) error {
	answer, err := readAnswer(v.r)
	if err != nil {
		return err
	}
	name := strings.TrimSpace(answer.Name)
	if name == "" {
		name = browserOf(v.r.UserAgent())
	}
	added, err := c.SignIn.FinishPasskey(v.ctx, v.User, origin(v.r), answer.Ceremony, name, answer.Response)
	if err != nil {
		return err
	}
	leaveNotice(w, v.r, "The passkey "+added.Name+" is added. You can sign in with it now.")
	manage.WriteJSON(w, http.StatusOK, map[string]string{"location": settingsPath})
	return nil
}

// confirmPage asks before something is removed.
type confirmPage struct {
	Title, Text, Button, Keep string
	Action, Back              string
}

func confirmTab(title string, data func(v *visit) (*confirmPage, error)) *tab {
	return &tab{name: "confirm", title: title, data: func(v *visit) (any, error) {
		p, err := data(v)
		if err != nil {
			return nil, err
		}
		p.Action, p.Back = v.r.URL.Path, settingsPath
		return p, nil
	}}
}

func findPasskey(v *visit) (store.Passkey, error) {
	passkeys := func(context.Context) ([]store.Passkey, error) { return v.SignIn.Passkeys(v.User.ID), nil }
	return find(v, passkeys, func(k store.Passkey) bool { return passkeyID(k) == v.r.PathValue("id") }, "You no longer have this passkey.")
}

var removePasskeyTab = confirmTab("Remove a passkey", func(v *visit) (*confirmPage, error) {
	k, err := findPasskey(v)
	return &confirmPage{
		Title: "Remove the passkey " + k.Name + "?", Button: "Remove " + k.Name, Keep: "Keep it",
		Text: "You can then no longer sign in with it. Its sessions continue; end them under Settings if the device is lost.",
	}, err
})

func removePasskey(v *visit) (notice string, err error) {
	k, err := findPasskey(v)
	if err == nil {
		err = v.Manage.Confirmed(v.ctx)
	}
	if err == nil {
		err = v.SignIn.RemovePasskey(v.ctx, v.User, k.ID)
	}
	return "The passkey " + k.Name + " is removed.", err
}

func (c *Console) endSession(w http.ResponseWriter, v *visit) error {
	ended, err := v.Manage.RevokeSession(v.ctx, v.r.PathValue("id"))
	if err != nil {
		return v.fault(settingsTab, err)
	}
	if ended.Current {
		dropCookie(w, v.r, sessionCookie)
		return c.done(w, v, "/console/sign-in", "You are signed out.")
	}
	return c.done(w, v, settingsPath, "The session is ended.")
}

func endSessions(v *visit) (notice string, err error) {
	sessions, err := v.Manage.RevokeSessions(v.ctx)
	if sessions.Ended == 0 {
		return "You have no other sessions.", err
	}
	return "Your other sessions are signed out: " + strconv.Itoa(sessions.Ended) + ".", err
}

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

// shownOncePage shows a link or a token, only once.
type shownOncePage struct {
	Title, Text, What, Secret string
	Until                     time.Time // zero: no end
	Example                   string    // a line that uses it
}

func invite(v *visit) (any, error) {
	link, err := v.Manage.Invite(v.ctx)
	return shownOncePage{
		Title: "Invitation", What: "link", Secret: link.URL, Until: link.ExpiresAt,
		Text: "Send this link to one person. It works once: the first person to open it becomes a user of this account, with the same rights as you.",
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
		Text: fmt.Sprintf("The first person to open this link sets a new password for %s. The current one works until then.", u.Name),
	}, err
}
