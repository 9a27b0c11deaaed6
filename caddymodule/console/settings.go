package console

import (
	"bytes"
	"encoding/base64"
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

// settingsTab is about the people of the account, and how they and their
// programs get in.
func settingsTab() *tab {
	return &tab{
		name: "settings", title: "Settings", data: settingsData,
		live: []string{"settings-sessions", "settings-users", "settings-invitations", "settings-tokens"}, every: time.Minute,
	}
}

type settingsPage struct {
	Passkeys    []passkeyRow
	PasskeyName string // that was typed before it had to be confirmed
	Sessions    []sessionRow
	Others      int // sessions but this one
	Users       []userRow
	Invitations []manage.Link
	Tokens      []tokenRow
	NewToken    tokenForm
}

type tokenRow struct {
	manage.Token
	Ended bool
}

type passkeyRow struct {
	ID string
	store.Passkey
}

type sessionRow struct {
	manage.Session
	Browser, Way string
}

type userRow struct {
	manage.User
	Self bool
}

func settingsData(v *visit) (any, error) {
	p := &settingsPage{PasskeyName: v.r.URL.Query().Get("passkey")}
	p.NewToken = newTokenForm(v)
	for _, k := range v.signIn.Passkeys(v.User.ID) {
		p.Passkeys = append(p.Passkeys, passkeyRow{passkeyID(k), k})
	}
	sessions, err := v.manage.Sessions(v.ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range sessions {
		row := sessionRow{Session: s, Browser: browserOf(s.UserAgent)}
		switch s.Method {
		case signin.MethodPasskey:
			row.Way = "by passkey"
		case signin.MethodLink:
			row.Way = "by one-time link"
		default:
			row.Way = "by password"
		}
		p.Sessions = append(p.Sessions, row)
	}
	slices.SortStableFunc(p.Sessions, func(a, b sessionRow) int {
		if a.Current != b.Current {
			return map[bool]int{true: -1, false: 1}[a.Current]
		}
		return b.SeenAt.Compare(a.SeenAt)
	})
	p.Others = max(0, len(p.Sessions)-1)
	users, err := v.manage.Users(v.Account)
	if err != nil {
		return nil, err
	}
	for _, u := range users {
		p.Users = append(p.Users, userRow{u, u.ID == v.User.ID})
	}
	if p.Invitations, err = v.manage.Invitations(v.Account); err != nil {
		return nil, err
	}
	tokens, err := v.manage.Tokens(v.Account)
	for _, t := range tokens {
		p.Tokens = append(p.Tokens, tokenRow{t, t.Expired(v.now())})
	}
	return p, err
}

func passkeyID(k store.Passkey) string { return base64.RawURLEncoding.EncodeToString(k.ID) }

// browserOf makes a short name of what a browser calls itself, which is a
// history of the web. The order matters: most say to be others, too.
func browserOf(agent string) string {
	browser, system := "", ""
	for _, known := range [...][2]string{
		{"Edg/", "Edge"},
		{"OPR/", "Opera"},
		{"Firefox/", "Firefox"},
		{"FxiOS/", "Firefox"},
		{"CriOS/", "Chrome"},
		{"Chrome/", "Chrome"},
		{"Safari/", "Safari"},
		{"curl/", "curl"},
	} {
		if strings.Contains(agent, known[0]) {
			browser = known[1]
			break
		}
	}
	for _, known := range [...][2]string{
		{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"CrOS", "ChromeOS"}, {"Linux", "Linux"},
	} {
		if strings.Contains(agent, known[0]) {
			system = known[1]
			break
		}
	}
	switch {
	case browser != "" && system != "":
		return browser + " on " + system
	case browser+system != "":
		return browser + system
	}
	return "Unknown browser"
}

func (c *Console) settingsRoutes(handle func(pattern string, a action)) {
	handle("POST /console/settings/password", c.changePassword)
	handle("POST /console/settings/passkeys/begin", c.beginPasskey)
	handle("POST /console/settings/passkeys", c.addPasskey)
	handle("GET /console/settings/passkeys/{id}/remove", c.page(removePasskeyTab))
	handle("POST /console/settings/passkeys/{id}/remove", c.removePasskey)
	handle("POST /console/settings/sessions/end-others", c.endSessions)
	handle("POST /console/settings/sessions/{id}/end", c.endSession)
	c.peopleRoutes(handle)
	c.tokensRoutes(handle)
}

func (c *Console) changePassword(w http.ResponseWriter, v *visit) error {
	password := v.r.PostFormValue("new-password")
	if err := c.signIn.ChangePassword(v.ctx, v.User.ID, v.Session.ID, v.r.PostFormValue("password"), password); err != nil {
		return v.fault(settingsTab(), err)
	}
	return c.done(w, v, settingsPath, "The new password is set. All other sessions of yours are ended.")
}

func (c *Console) beginPasskey(w http.ResponseWriter, v *visit) error {
	if err := v.manage.Confirmed(v.ctx); err != nil {
		return err
	}
	options, ceremony, err := c.signIn.BeginPasskey(v.ctx, v.User, origin(v.r))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, ceremonyOptions{options, ceremony})
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
	added, err := c.signIn.FinishPasskey(v.ctx, v.User, origin(v.r), answer.Ceremony, name, answer.Response)
	if err != nil {
		return err
	}
	leaveNotice(w, v.r, "The passkey "+added.Name+" is added. You can sign in with it from now on.")
	writeJSON(w, http.StatusOK, struct {
		Location string `json:"location"`
	}{settingsPath})
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
	id, err := base64.RawURLEncoding.DecodeString(v.r.PathValue("id"))
	passkeys := v.signIn.Passkeys(v.User.ID)
	i := slices.IndexFunc(passkeys, func(k store.Passkey) bool { return err == nil && bytes.Equal(k.ID, id) })
	if i < 0 {
		return store.Passkey{}, notThere("You have no such passkey any more.")
	}
	return passkeys[i], nil
}

func removePasskeyTab() *tab {
	return confirmTab("Remove a passkey", func(v *visit) (*confirmPage, error) {
		k, err := findPasskey(v)
		return &confirmPage{
			Title: "Remove the passkey " + k.Name + "?", Button: "Remove " + k.Name, Keep: "Keep it",
			Text: "You cannot sign in with it any more. Sessions that it began last on; end them under Settings if the device is lost.",
		}, err
	})
}

func (c *Console) removePasskey(w http.ResponseWriter, v *visit) error {
	k, err := findPasskey(v)
	if err == nil {
		err = v.manage.Confirmed(v.ctx)
	}
	if err == nil {
		err = c.signIn.RemovePasskey(v.ctx, v.User, k.ID)
	}
	if err != nil {
		return v.fault(settingsTab(), err)
	}
	return c.done(w, v, settingsPath, "The passkey "+k.Name+" is removed.")
}

func (c *Console) endSession(w http.ResponseWriter, v *visit) error {
	ended, err := v.manage.RevokeSession(v.ctx, v.r.PathValue("id"))
	if err != nil {
		return v.fault(settingsTab(), err)
	}
	if ended.Current {
		leave(w, v.r)
		return c.done(w, v, "/console/sign-in", "You are signed out.")
	}
	return c.done(w, v, settingsPath, "The session is ended.")
}

func (c *Console) endSessions(w http.ResponseWriter, v *visit) error {
	n, err := v.manage.RevokeSessions(v.ctx)
	if err != nil {
		return v.fault(settingsTab(), err)
	}
	notice := "All other sessions of yours are ended: " + strconv.Itoa(n) + "."
	if n == 0 {
		notice = "There is no other session of yours."
	}
	return c.done(w, v, settingsPath, notice)
}
