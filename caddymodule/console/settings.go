package console

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/signin/oidc"
	"github.com/postern-dev/postern/caddymodule/store"
)

// settingsTab manages the users of the account, their credentials, and the
// management tokens.
var settingsTab = &tab{
	path: "settings", name: "settings", title: "Settings", data: settingsData,
	live: []string{"settings-sessions", "settings-users", "settings-invitations", "settings-tokens"},
}

type settingsPage struct {
	User        string // id of the current user
	Now         time.Time
	Passkeys    []store.Passkey
	PasskeyName string // typed before the confirmation
	Identities  []store.UserIdentity
	Issuers     []*oidc.Issuer
	Password    bool // the user has one
	Local       bool // people without an issuer may be invited
	Sessions    []manage.Session
	Users       []manage.User
	ByIssuer    []manage.User // who sign in by an issuer, or must
	NoOwner     []manage.Key  // keys that are never suspended, if others are
	Invitations []manage.Link
	Tokens      []manage.Token
	NewToken    tokenForm
	API         string // base URL of the management API
	Webhooks    []manage.Webhook
	MayTest     bool // test them
	Limits      *accountForm
}

// sessionMethods describes the sign-in methods of sessions.
var sessionMethods = map[string]string{
	signin.MethodPassword: "by password", signin.MethodPasskey: "by passkey", signin.MethodLink: "by one-time link",
	store.MethodIssuer: "with the company’s account", store.MethodRecovery: "by one-time link",
}

func settingsData(v *visit) any {
	p := &settingsPage{
		User: v.User.ID, Now: v.Now(), Passkeys: v.SignIn.Passkeys(v.User.ID), PasskeyName: v.r.URL.Query().Get("passkey"),
		Identities: v.SignIn.Identities(v.User.ID), Issuers: v.Issuers, Password: v.SignIn.HasPassword(v.User.ID),
		Local:    v.SignIn.Local() == nil,
		Sessions: load(v, v.Manage.Sessions), Tokens: load(v, v.Manage.Tokens), NewToken: newTokenForm(v),
		API: v.endpoint().URL + "/console/api", Limits: newAccountForm(v),
	}
	if v.Manage.May(v.ctx, "GET /users") == nil {
		p.Users, p.Invitations = load(v, v.Manage.Users), load(v, v.Manage.Invitations)
		p.ByIssuer = slices.DeleteFunc(slices.Clone(p.Users), func(u manage.User) bool {
			return len(u.Identities) == 0 && u.SuspendedFrom.IsZero()
		})
		if v.Manage.KeysNeedSignIn() {
			p.NoOwner = slices.DeleteFunc(load(v, v.Manage.Keys), func(k manage.Key) bool {
				return k.Owner != "" || k.State != store.KeyValid
			})
		}
	}
	if webhooks, err := v.Manage.Webhooks(v.ctx); err == nil && v.may("POST /console/settings/webhooks/test") == nil {
		p.Webhooks, p.MayTest = webhooks, true
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
	return p
}

// SuspendedSoon reports whether the keys of a user are suspended within a week; SuspendedNow, whether they are.
func (p *settingsPage) SuspendedSoon(u manage.User) bool {
	return !u.SuspendedFrom.IsZero() && p.Now.Add(7*24*time.Hour).After(u.SuspendedFrom)
}

func (p *settingsPage) SuspendedNow(u manage.User) bool { return !p.Now.Before(u.SuspendedFrom) }

func testWebhooks(v *visit) error {
	tested, err := v.Manage.TestWebhooks(v.ctx)
	var results []string
	for _, t := range tested {
		if results = append(results, t.Host+" ("+t.Format+"): "+t.Result()); t.Error != "" {
			err = manage.ErrNotReady
		}
	}
	text := strings.Join(results, "; ") + "."
	if len(results) > 0 && err != nil {
		err = store.Errorf(err, "%s", text)
	}
	return v.done(settingsTab.url(), text, err)
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

// firstIn returns the name after the first mark that agent contains.
func firstIn(agent string, marks ...string) string {
	for pair := range slices.Chunk(marks, 2) {
		if strings.Contains(agent, pair[0]) {
			return pair[1]
		}
	}
	return ""
}

func changePassword(v *visit) error {
	err := v.SignIn.ChangePassword(v.ctx, v.User.ID, v.Session.ID, v.typed("password"), v.typed("new-password"))
	return v.done(settingsTab.url(), "The new password is set. Your other sessions are signed out.", err)
}

func beginPasskey(v *visit) error {
	if err := v.Manage.Confirmed(v.ctx); err != nil {
		return err
	}
	return v.sendOptions(v.SignIn.BeginPasskey(v.ctx, v.User, origin(v.r)))
}

func addPasskey(v *visit) error {
	answer, err := readAnswer(v.r)
	if err != nil {
		return err
	}
	name := cmp.Or(strings.TrimSpace(answer.Name), browserOf(v.r.UserAgent()))
	added, err := v.SignIn.FinishPasskey(v.ctx, v.User, origin(v.r), answer.Ceremony, name, answer.Response)
	if err != nil {
		return err
	}
	v.leaveNotice("The passkey " + added.Name + " is added. You can sign in with it now.")
	return v.sendLocation(settingsTab.url())
}

var (
	removePasskeyTab = askTab("settings/passkeys/{id}/remove", "passkey-remove", "Remove a passkey", findPasskey)
	removeUserTab    = askTab("settings/users/{id}/remove", "user-remove", "Remove a user", removalOf)
	invitationTab    = &tab{name: "invitation", title: "Invitation"}
	recoveryTab      = &tab{name: "recovery-link", title: "Reset link"}
)

func findPasskey(v *visit) store.Passkey {
	passkeys := func(context.Context) ([]store.Passkey, error) { return v.SignIn.Passkeys(v.User.ID), nil }
	return find(v, passkeys, func(k store.Passkey) bool { return passkeyID(k) == v.id() },
		"You no longer have this passkey.")
}

func removePasskey(v *visit) error {
	k := findPasskey(v)
	err := cmp.Or(v.err, v.Manage.Confirmed(v.ctx))
	if err == nil {
		err = v.SignIn.RemovePasskey(v.ctx, v.User, k.ID)
	}
	return v.done(settingsTab.url(), "The passkey "+k.Name+" is removed.", err)
}

func endSession(v *visit) error {
	ended, err := v.Manage.RevokeSession(v.ctx, v.id())
	if ended.Current {
		v.dropCookie(sessionCookie)
		return v.done(signInTab.url(), "You are signed out.", err)
	}
	return v.done(settingsTab.url(), "The session is ended.", err)
}

func invite(v *visit) error {
	link, err := v.Manage.Invite(v.ctx, manage.Invite{Role: v.typed("role")})
	return v.show(invitationTab, link, err)
}

func findUser(v *visit) manage.User {
	return find(v, v.Manage.Users, func(u manage.User) bool { return u.ID == v.id() }, "This user no longer exists.")
}

// removal is the form that removes a user.
type removal struct {
	manage.User
	Keys       []usedKey // of the user, that work or may work again
	UseUnknown bool
	Others     []manage.User
	Choice, To string // what becomes of the keys, and their new owner
}

func removalOf(v *visit) removal {
	r := removal{User: findUser(v), Choice: cmp.Or(v.typed("keys"), "revoke"), To: v.typed("to")}
	var records []store.Key
	for _, k := range load(v, v.Manage.Keys) {
		if k.Owner != r.ID || k.RevokedAt != nil {
			continue
		}
		r.Keys, records = append(r.Keys, usedKey{Key: k}), append(records, k.Key)
	}
	uses, err := v.Manage.KeyUses(v.ctx, records)
	r.UseUnknown = err != nil
	for i, k := range r.Keys {
		r.Keys[i].Use = uses[k.ID]
	}
	r.Others = slices.DeleteFunc(load(v, v.Manage.Users), func(u manage.User) bool { return u.ID == r.ID })
	return r
}

func removeUser(v *visit) error {
	choice := v.typed("keys")
	if choice == "give" {
		choice += "=" + v.typed("to")
	}
	removed, err := v.Manage.RemoveUser(v.ctx, manage.RemoveUser{User: v.id(), Keys: choice})
	if !store.Committed(err) {
		return err
	}
	return v.done(settingsTab.url(), removed.Name+" is removed.", err)
}

func recoveryLink(v *visit) error {
	u := findUser(v)
	if v.err != nil {
		return v.err
	}
	link, err := v.Manage.RecoveryLink(v.ctx, u.ID)
	return v.show(recoveryTab, struct {
		manage.Link
		Name string
	}{link, u.Name}, err)
}

var (
	tokenTab       = &tab{name: "token-created", title: "Management token"}
	revokeTokenTab = askTab("settings/tokens/{id}/revoke", "token-revoke", "Revoke a management token",
		func(v *visit) manage.Token {
			return find(v, v.Manage.Tokens, func(t manage.Token) bool { return t.ID == v.id() },
				"This management token no longer exists.")
		})
)

// tokenForm is the submitted form of a new token.
type tokenForm struct {
	Name   string
	Rights []string
	Days   string
}

// Choices returns the days until a token expires; 0 is never.
func (tokenForm) Choices() []string { return []string{"7", "30", "90", "365", "0"} }

// roleTexts describe the roles.
var roleTexts = map[store.Role]string{
	store.RoleAdmin:  "Admin: may do everything",
	store.RoleMember: "Member: creates keys of its own, tries models with them, and sees their use",
	store.RoleViewer: "Viewer: sees everything but secrets, and changes nothing",
}

// rightTexts describe the rights.
var rightTexts = map[string]string{
	"read":        "see everything but secrets",
	"keys":        "create, revoke and remove keys",
	"connectors":  "pair, rotate and remove connectors",
	"deployments": "publish, test and remove models",
}

// rightOperations need a right: a change that some roles may not make, and a list that a token with it can read.
var rightOperations = map[string][2]string{
	"read": {"GET /keys", "keys"}, "keys": {"POST /keys", "keys"}, "connectors": {"POST /connectors", "connectors"},
	"deployments": {"PUT /deployments/{name}", "deployments"},
}

// rightsFor returns the names of the rights that a user can use.
func rightsFor(may func(operation string) bool) func() []string {
	return func() []string {
		return slices.DeleteFunc(store.RightNames(), func(name string) bool { return !may(rightOperations[name][0]) })
	}
}

func newTokenForm(v *visit) tokenForm {
	if v.r.URL.Path == "/console/settings/tokens" {
		return tokenForm{v.typed("name"), v.r.PostForm["right"], v.typed("days")}
	}
	return tokenForm{Rights: []string{"read"}, Days: "90"}
}

func createToken(v *visit) error {
	form := newTokenForm(v)
	if len(form.Rights) == 0 {
		return badField("right", "Choose at least one right.")
	}
	days, err := strconv.Atoi(form.Days)
	if err != nil || !slices.Contains(form.Choices(), form.Days) {
		return badField("days", "Choose when the token expires.")
	}
	request := manage.CreateToken{Name: form.Name, Rights: form.Rights}
	if days > 0 {
		request.ExpiresAt = new(v.Now().UTC().AddDate(0, 0, days))
	}
	created, err := v.Manage.CreateToken(v.ctx, request)
	return v.show(tokenTab, struct {
		manage.CreatedToken
		Example string
		Private *privateAuthority
	}{created, v.endpoint().URL + "/console/api/" + rightOperations[form.Rights[0]][1], v.privateAuthority()}, err)
}
