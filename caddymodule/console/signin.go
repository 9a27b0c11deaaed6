package console

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/signin/oidc"
	"github.com/postern-dev/postern/caddymodule/store"
)

// maxUserAgent bounds the stored User-Agent, in bytes.
const maxUserAgent = 256

var signInTab = &tab{path: "sign-in", name: "sign-in", title: "Sign in", noSections: true}

func signInPage(v *visit) error {
	switch {
	case v.signedIn():
		return v.redirect(localPath(v.r.FormValue("next")))
	case !v.SignIn.HasUsers() && len(v.Issuers) == 0:
		return v.redirect(setupTab.url())
	}
	return v.showSignIn(http.StatusOK, "")
}

// signInData is the data of the sign-in page.
type signInData struct {
	Name, Host, Next string
	Issuers          []*oidc.Issuer
	Local            bool         // by password and passkey
	Left             *oidc.Issuer // that of the session which has just ended, if the person can sign out there, too
}

func (v *visit) showSignIn(status int, fault string) error {
	data := signInData{Name: v.typed("name"), Host: v.r.Host, Issuers: v.Issuers, Local: v.SignIn.Local() == nil}
	if next := localPath(v.r.FormValue("next")); next != "/console/" {
		data.Next = next
	}
	if i := v.issuer(v.r.FormValue("left")); i != nil && i.SignOutURL() != "" {
		data.Left = i
	}
	return v.showFault(signInTab, status, data, fault)
}

func (v *visit) attempt() signin.Attempt {
	agent := v.r.UserAgent()
	return signin.Attempt{
		Address: v.ClientIP(v.r), UserAgent: strings.ToValidUTF8(agent[:min(len(agent), maxUserAgent)], ""),
		Name: strings.TrimSpace(v.typed("name")), Password: v.typed("password"),
	}
}

func signInByPassword(v *visit) error {
	signed, err := v.SignIn.Password(v.ctx, v.attempt())
	if err != nil {
		return v.showSignIn(v.explain(err))
	}
	v.startSession(signed, secure(v.r))
	return v.redirect(localPath(v.typed("next")))
}

func signOut(v *visit) error {
	var err error
	if v.signedIn() {
		if err = v.SignIn.SignOut(v.ctx, v.Session); !store.Committed(err) {
			return err
		}
	}
	v.dropCookie(sessionCookie)
	to := signInTab.url()
	if i := v.issuer(v.Session.Issuer); i != nil {
		to += "?" + url.Values{"left": {i.Name}}.Encode()
	}
	return v.done(to, "You are signed out.", err)
}

// The pages of one-time links. The secret is in the fragment of the URL, which browsers
// do not send; a script moves it into the form.
var (
	setupTab   = &tab{path: "setup", name: "link", title: "Create the first user", noSections: true}
	joinTab    = &tab{path: "join", name: "link", title: "Join", noSections: true}
	recoverTab = &tab{path: "recover", name: "link", title: "Choose a new password", noSections: true}
)

type linkData struct {
	Title, Path string // of the tab
	Name, Link  string
	End         store.Ending
	Local       bool // a link sets a password; without it, a link only signs in
}

func linkPage(t *tab) action {
	return func(v *visit) error {
		if t == setupTab && v.SignIn.HasUsers() {
			v.leaveNotice("This gateway has users already. Sign in, or ask one of them to invite you.")
			return v.redirect(signInTab.url())
		}
		return v.show(t, linkData{
			Title: t.title, Path: t.path, End: store.Ending{Passkeys: true, Tokens: true},
			Local: v.SignIn.Local() == nil,
		}, nil)
	}
}

func redeemLink(t *tab) action {
	return func(v *visit) error {
		attempt := v.attempt()
		attempt.End = store.Ending{Passkeys: v.typed("end_passkeys") != "", Tokens: v.typed("end_tokens") != ""}
		secret := linkSecret(v.typed("link"))
		signed, err := v.SignIn.Redeem(v.ctx, attempt, secret)
		if store.Committed(err) {
			v.startSession(signed, secure(v.r))
			if err != nil {
				v.leaveNotice(withPending("The new password is set.", err))
			}
			return v.redirect("/console/")
		}
		status, text := v.explain(err)
		if errors.Is(err, signin.ErrLink) || errors.Is(err, store.ErrConflict) {
			secret = "" // a second attempt would fail, too
		}
		return v.showFault(t, status,
			linkData{t.title, t.path, v.typed("name"), secret, attempt.End, v.SignIn.Local() == nil}, text)
	}
}

// linkSecret returns the secret of pasted text: a whole link, or only the part after
// its #.
func linkSecret(pasted string) string {
	if _, fragment, ok := strings.Cut(pasted, "#"); ok {
		pasted = fragment
	}
	return strings.TrimSpace(pasted)
}

// ceremonyAnswer is the request of a page with the passkey of the browser.
type ceremonyAnswer struct {
	Ceremony string          `json:"ceremony"`
	Name     string          `json:"name"`
	Next     string          `json:"next"`
	Response json.RawMessage `json:"response"`
}

type ceremonyOptions struct {
	Options  json.RawMessage `json:"options"`
	Ceremony string          `json:"ceremony"`
}

func readAnswer(r *http.Request) (ceremonyAnswer, error) {
	var a ceremonyAnswer
	if !wantsJSON(r) {
		return a, badForm("passkeys need JavaScript: allow it for this page, or use a password")
	}
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		return a, &formError{err}
	}
	return a, nil
}

// origin returns the origin of the page; browsers bind passkeys to it. Behind a proxy
// that terminates TLS, only the browser knows the scheme. The host must be that of
// the request.
func origin(r *http.Request) string {
	if u, err := url.Parse(r.Header.Get("Origin")); err == nil && u.Host == r.Host &&
		(u.Scheme == "https" || u.Scheme == "http") {
		return u.Scheme + "://" + u.Host
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// sendOptions sends the options of a ceremony to the page.
func (v *visit) sendOptions(options json.RawMessage, ceremony string, err error) error {
	if err == nil {
		manage.WriteJSON(v.w, http.StatusOK, ceremonyOptions{options, ceremony})
	}
	return err
}

// sendLocation sends the address of the next page to a page with a passkey.
func (v *visit) sendLocation(path string) error {
	manage.WriteJSON(v.w, http.StatusOK, map[string]string{"location": path})
	return nil
}

func beginSignInByPasskey(v *visit) error {
	return v.sendOptions(v.SignIn.BeginPasskeySignIn(v.ctx, v.ClientIP(v.r), origin(v.r)))
}

func signInByPasskey(v *visit) error {
	answer, err := readAnswer(v.r)
	if err != nil {
		return err
	}
	signed, err := v.SignIn.FinishPasskeySignIn(v.ctx, v.attempt(), origin(v.r), answer.Ceremony, answer.Response)
	if err != nil {
		return err
	}
	v.startSession(signed, secure(v.r))
	return v.sendLocation(localPath(answer.Next))
}

// confirmField is the form field of the password that confirms an action.
const confirmField = "confirm-password"

// confirmSessionPage asks the user of a session for a password or a passkey. The
// form carries the fields of the original request.
type confirmSessionPage struct {
	Action   string
	Fields   url.Values
	Passkey  bool // the user has one
	Password bool // the user has one
	Issuers  []*oidc.Issuer
	Next     string // after a confirmation by an issuer
}

var confirmSessionTab = &tab{name: "confirm-session", title: "Confirm that it is you"}

func confirm(v *visit) error { return v.askToConfirm(http.StatusOK, "") }

// signInField returns the field of a form that an error of a sign-in or of a password is about, "" for none.
func (v *visit) signInField(err error) string {
	for kind, fields := range map[error][]string{
		signin.ErrLink: {"link"}, signin.ErrCredentials: {confirmField, "password"},
		signin.ErrPassword: {"new-password", "password"},
	} {
		if i := slices.IndexFunc(fields, v.r.PostForm.Has); i >= 0 && errors.Is(err, kind) {
			return fields[i]
		}
	}
	return ""
}

// act performs an action. The request may carry the password that confirms it.
func (v *visit) act(do action) error {
	if !v.signedIn() || !v.r.PostForm.Has(confirmField) {
		return do(v)
	}
	session, err := v.SignIn.Confirm(v.ctx, v.Session, v.typed(confirmField))
	if err != nil {
		status, text := v.explain(err)
		return v.askToConfirm(status, text)
	}
	v.setSession(session)
	return do(v)
}

// askToConfirm shows a form that repeats the request with the password added.
func (v *visit) askToConfirm(status int, fault string) error {
	p := confirmSessionPage{
		Action: v.r.URL.EscapedPath(), Fields: maps.Clone(v.r.Form),
		Passkey: len(v.SignIn.Passkeys(v.User.ID)) > 0, Password: v.SignIn.HasPassword(v.User.ID),
		Next: localPath(v.r.FormValue("next")),
	}
	if from, err := url.Parse(v.r.Referer()); err == nil && !v.r.Form.Has("next") {
		p.Next = localPath(from.RequestURI())
	}
	for _, identity := range v.SignIn.Identities(v.User.ID) {
		if i := v.issuer(identity.Issuer); i != nil && i.Confirms() {
			p.Issuers = append(p.Issuers, i)
		}
	}
	delete(p.Fields, confirmField)
	return v.showFault(confirmSessionTab, status, p, fault)
}

// afterConfirmation redirects to the next page, after act or confirmByPasskey.
func afterConfirmation(v *visit) error {
	return v.done(localPath(v.r.FormValue("next")), "Confirmed. You will not be asked again for five minutes.",
		v.Manage.Confirmed(v.ctx))
}

func confirmByPasskey(v *visit) error {
	answer, err := readAnswer(v.r)
	if err != nil {
		return err
	}
	if _, err := v.SignIn.ConfirmByPasskey(v.ctx, v.Session, v.ClientIP(v.r), origin(v.r), answer.Ceremony,
		answer.Response); err != nil {
		return err
	}
	manage.WriteJSON(v.w, http.StatusOK, struct{}{})
	return nil
}
