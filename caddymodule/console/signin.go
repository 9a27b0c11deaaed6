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

// maxUserAgent bounds what is kept of a browser's name for itself.
const maxUserAgent = 256

// open is an action for everybody.
type open func(w http.ResponseWriter, r *http.Request) error

func (c *Console) signInRoutes() {
	for pattern, o := range map[string]open{
		"GET /console/sign-in":                c.signInPage,
		"POST /console/sign-in":               c.signInByPassword,
		"POST /console/sign-in/passkey/begin": c.beginSignInByPasskey,
		"POST /console/sign-in/passkey":       c.signInByPasskey,
		"POST /console/sign-out":              c.signOut,
		"GET /console/setup":                  c.linkPage(setupLink),
		"POST /console/setup":                 c.redeemLink(setupLink),
		"GET /console/join":                   c.linkPage(joinLink),
		"POST /console/join":                  c.redeemLink(joinLink),
		"GET /console/recover":                c.linkPage(recoverLink),
		"POST /console/recover":               c.redeemLink(recoverLink),
	} {
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			err := o(w, r)
			if err == nil {
				return
			}
			status, text := c.explain(w, r, err)
			if wantsJSON(r) {
				manage.WriteError(w, status, text, nil)
				return
			}
			c.failPage(w, frame{}, status, text)
		})
	}
}

type signInData struct {
	Name, Next string
}

func (c *Console) signInPage(w http.ResponseWriter, r *http.Request) error {
	if _, ok := c.visit(r); ok {
		http.Redirect(w, r, localPath(r.FormValue("next")), http.StatusSeeOther)
		return nil
	}
	if !c.signIn.HasUsers() {
		http.Redirect(w, r, "/console/setup", http.StatusSeeOther)
		return nil
	}
	return c.showSignIn(w, r, http.StatusOK, "")
}

func (c *Console) showSignIn(w http.ResponseWriter, r *http.Request, status int, fault string) error {
	data := signInData{Name: r.PostFormValue("name")}
	if next := localPath(r.FormValue("next")); next != "/console/" {
		data.Next = next
	}
	return c.render(w, status, "sign-in", data, frame{Title: "Sign in", Notice: takeNotice(w, r), Fault: fault, Passkey: true})
}

func (c *Console) attempt(r *http.Request) signin.Attempt {
	agent := r.UserAgent()
	return signin.Attempt{
		Address: c.clientIP(r), UserAgent: strings.ToValidUTF8(agent[:min(len(agent), maxUserAgent)], ""),
		Name: strings.TrimSpace(r.PostFormValue("name")), Password: r.PostFormValue("password"),
	}
}

func (c *Console) signInByPassword(w http.ResponseWriter, r *http.Request) error {
	signed, err := c.signIn.Password(r.Context(), c.attempt(r))
	if err != nil {
		status, text := c.explain(w, r, err)
		return c.showSignIn(w, r, status, text)
	}
	c.enter(w, r, signed)
	http.Redirect(w, r, localPath(r.PostFormValue("next")), http.StatusSeeOther)
	return nil
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) error {
	if v, ok := c.visit(r); ok {
		if err := c.signIn.SignOut(r.Context(), v.Session); err != nil {
			return err
		}
	}
	leave(w, r)
	leaveNotice(w, r, "You are signed out.")
	http.Redirect(w, r, "/console/sign-in", http.StatusSeeOther)
	return nil
}

// linkKind is a page that a one-time link leads to. The link's secret stands in
// the fragment of its URL, which browsers keep to themselves: a script moves it
// into the form.
type linkKind struct {
	Path, Title, Text, Button string
	Help                      string // how to get such a link
	AsksName, Recovers        bool
}

var (
	setupLink = linkKind{
		Path: "/console/setup", Title: "Make the first user", Button: "Make the user", AsksName: true,
		Text: "This gateway has no user yet. The one that you make here can invite others.",
		Help: "The gateway printed it at its first start. `caddy gateway setup-link` prints a new one.",
	}
	joinLink = linkKind{
		Path: "/console/join", Title: "Join", Button: "Join", AsksName: true,
		Text: "You are invited to this gateway. Choose the name and the password that you sign in with.",
		Help: "It was sent to you by the user who invited you, and works for three days.",
	}
	recoverLink = linkKind{
		Path: "/console/recover", Title: "Choose a new password", Button: "Set the password", Recovers: true,
		Text: "The password before stops working, and its sessions end.",
		Help: "Another user makes one under Settings, or `caddy gateway user recovery-link` does.",
	}
)

type linkData struct {
	linkKind
	Name, Link string
	End        store.Ending
}

func (c *Console) linkPage(kind linkKind) open {
	return func(w http.ResponseWriter, r *http.Request) error {
		if kind == setupLink && c.signIn.HasUsers() {
			leaveNotice(w, r, "The first user is made already. Sign in, or have a user invite you.")
			http.Redirect(w, r, "/console/sign-in", http.StatusSeeOther)
			return nil
		}
		return c.showLink(w, r, kind, http.StatusOK, "", "")
	}
}

func (c *Console) showLink(w http.ResponseWriter, r *http.Request, kind linkKind, status int, secret, fault string) error {
	data := linkData{linkKind: kind, Name: r.PostFormValue("name"), Link: secret, End: ending(r)}
	if r.Method != http.MethodPost {
		data.End = store.Ending{Passkeys: true, Tokens: true}
	}
	return c.render(w, status, "link", data, frame{Title: kind.Title, Fault: fault})
}

// ending reads what is ticked on the page of a recovery link.
func ending(r *http.Request) store.Ending {
	return store.Ending{Passkeys: r.PostFormValue("end_passkeys") != "", Tokens: r.PostFormValue("end_tokens") != ""}
}

func (c *Console) redeemLink(kind linkKind) open {
	return func(w http.ResponseWriter, r *http.Request) error {
		secret := linkSecret(r.PostFormValue("link"))
		attempt := c.attempt(r)
		attempt.End = ending(r)
		signed, err := c.signIn.Redeem(r.Context(), attempt, secret)
		if err != nil {
			status, text := c.explain(w, r, err)
			if errors.Is(err, signin.ErrLink) || errors.Is(err, store.ErrConflict) {
				secret = "" // it will not work better the next time
			}
			return c.showLink(w, r, kind, status, secret, text)
		}
		c.enter(w, r, signed)
		http.Redirect(w, r, "/console/", http.StatusSeeOther)
		return nil
	}
}

// linkSecret finds the secret in what was pasted: a whole link, or only
// what stands behind its #.
func linkSecret(pasted string) string {
	if _, fragment, ok := strings.Cut(pasted, "#"); ok {
		pasted = fragment
	}
	return strings.TrimSpace(pasted)
}

// ceremonyAnswer is what a page sends after it has asked the browser for a
// passkey.
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
		return a, badForm("passkeys need scripts: allow them for this page, or use a password")
	}
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		return a, &formError{err}
	}
	return a, nil
}

// origin is the page's, as browsers bind passkeys to it. Behind a proxy that
// ends TLS only the browser knows the scheme; that the host is this one has
// been checked by whom unsafe requests come from, and is checked again here.
func origin(r *http.Request) string {
	if u, err := url.Parse(r.Header.Get("Origin")); err == nil && u.Host == r.Host && (u.Scheme == "https" || u.Scheme == "http") {
		return u.Scheme + "://" + u.Host
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func (c *Console) beginSignInByPasskey(w http.ResponseWriter, r *http.Request) error {
	options, ceremony, err := c.signIn.BeginPasskeySignIn(r.Context(), c.clientIP(r), origin(r))
	if err != nil {
		return err
	}
	manage.WriteJSON(w, http.StatusOK, ceremonyOptions{options, ceremony})
	return nil
}

func (c *Console) signInByPasskey(w http.ResponseWriter, r *http.Request) error {
	answer, err := readAnswer(r)
	if err != nil {
		return err
	}
	signed, err := c.signIn.FinishPasskeySignIn(r.Context(), c.attempt(r), origin(r), answer.Ceremony, answer.Response)
	if err != nil {
		return err
	}
	c.enter(w, r, signed)
	manage.WriteJSON(w, http.StatusOK, struct {
		Location string `json:"location"`
	}{localPath(answer.Next)})
	return nil
}
