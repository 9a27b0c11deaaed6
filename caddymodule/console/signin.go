package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

// maxUserAgent bounds the stored User-Agent, in bytes.
const maxUserAgent = 256

func (c *Console) signInPage(w http.ResponseWriter, v *visit) error {
	switch {
	case v.signedIn():
		return v.redirect(w, localPath(v.r.FormValue("next")))
	case !c.SignIn.HasUsers():
		return v.redirect(w, "/console/setup")
	}
	return c.showSignIn(w, v, http.StatusOK, "")
}

func (c *Console) showSignIn(w http.ResponseWriter, v *visit, status int, fault string) error {
	data := map[string]string{"Name": v.r.PostFormValue("name")}
	if next := localPath(v.r.FormValue("next")); next != "/console/" {
		data["Next"] = next
	}
	return c.render(w, status, "sign-in", data, frame{Title: "Sign in", Notice: takeNotice(w, v.r), Fault: fault, Passkey: true})
}

func (c *Console) attempt(r *http.Request) signin.Attempt {
	agent := r.UserAgent()
	return signin.Attempt{
		Address: c.ClientIP(r), UserAgent: strings.ToValidUTF8(agent[:min(len(agent), maxUserAgent)], ""),
		Name: strings.TrimSpace(r.PostFormValue("name")), Password: r.PostFormValue("password"),
	}
}

func (c *Console) signInByPassword(w http.ResponseWriter, v *visit) error {
	signed, err := c.SignIn.Password(v.ctx, c.attempt(v.r))
	if err != nil {
		status, text := c.explain(w, v.r, err)
		return c.showSignIn(w, v, status, text)
	}
	c.startSession(w, v, signed)
	return v.redirect(w, localPath(v.r.PostFormValue("next")))
}

func (c *Console) signOut(w http.ResponseWriter, v *visit) error {
	if v.signedIn() {
		if err := c.SignIn.SignOut(v.ctx, v.Session); err != nil {
			return err
		}
	}
	dropCookie(w, v.r, sessionCookie)
	leaveNotice(w, v.r, "You are signed out.")
	return v.redirect(w, "/console/sign-in")
}

// linkKind is the page of a one-time link. The secret is in the fragment of the URL,
// which browsers do not send; a script moves it into the form.
type linkKind struct {
	Path, Title, Text, Button string
	Help                      string // how to get a link
	AsksName, Recovers        bool
}

var (
	setupLink = linkKind{
		Path: "/console/setup", Title: "Create the first user", Button: "Create user", AsksName: true,
		Text: "No users yet. Create yours; you can invite others later.",
		Help: "The gateway printed it on first start. `caddy gateway setup-link` prints a new one.",
	}
	joinLink = linkKind{
		Path: "/console/join", Title: "Join", Button: "Join", AsksName: true,
		Text: "You’ve been invited to this gateway. Choose a name and a password.",
		Help: "It was sent to you by the user who invited you, and works for three days.",
	}
	recoverLink = linkKind{
		Path: "/console/recover", Title: "Choose a new password", Button: "Set the password", Recovers: true,
		Text: "Your old password stops working and all sessions are signed out.",
		Help: "Another user creates one under Settings, or `caddy gateway user recovery-link` prints one.",
	}
)

type linkData struct {
	linkKind
	Name, Link string
	End        store.Ending
}

func (c *Console) linkPage(kind linkKind) action {
	return func(w http.ResponseWriter, v *visit) error {
		if kind == setupLink && c.SignIn.HasUsers() {
			leaveNotice(w, v.r, "This gateway has users already. Sign in, or ask one of them to invite you.")
			return v.redirect(w, "/console/sign-in")
		}
		data := linkData{linkKind: kind, End: store.Ending{Passkeys: true, Tokens: true}}
		return c.render(w, http.StatusOK, "link", data, frame{Title: kind.Title})
	}
}

func (c *Console) redeemLink(kind linkKind) action {
	return func(w http.ResponseWriter, v *visit) error {
		attempt := c.attempt(v.r)
		attempt.End = store.Ending{Passkeys: v.r.PostFormValue("end_passkeys") != "", Tokens: v.r.PostFormValue("end_tokens") != ""}
		secret := linkSecret(v.r.PostFormValue("link"))
		signed, err := c.SignIn.Redeem(v.ctx, attempt, secret)
		if err != nil {
			status, text := c.explain(w, v.r, err)
			if errors.Is(err, signin.ErrLink) || errors.Is(err, store.ErrConflict) {
				secret = "" // a second attempt would fail, too
			}
			data := linkData{linkKind: kind, Name: v.r.PostFormValue("name"), Link: secret, End: attempt.End}
			return c.render(w, status, "link", data, frame{Title: kind.Title, Fault: text})
		}
		c.startSession(w, v, signed)
		return v.redirect(w, "/console/")
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
	if u, err := url.Parse(r.Header.Get("Origin")); err == nil && u.Host == r.Host && (u.Scheme == "https" || u.Scheme == "http") {
		return u.Scheme + "://" + u.Host
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func (c *Console) beginSignInByPasskey(w http.ResponseWriter, v *visit) error {
	options, ceremony, err := c.SignIn.BeginPasskeySignIn(v.ctx, c.ClientIP(v.r), origin(v.r))
	if err != nil {
		return err
	}
	manage.WriteJSON(w, http.StatusOK, ceremonyOptions{options, ceremony})
	return nil
}

func (c *Console) signInByPasskey(w http.ResponseWriter, v *visit) error {
	answer, err := readAnswer(v.r)
	if err != nil {
		return err
	}
	signed, err := c.SignIn.FinishPasskeySignIn(v.ctx, c.attempt(v.r), origin(v.r), answer.Ceremony, answer.Response)
	if err != nil {
		return err
	}
	c.startSession(w, v, signed)
	manage.WriteJSON(w, http.StatusOK, map[string]string{"location": localPath(answer.Next)})
	return nil
}
