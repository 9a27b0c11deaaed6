package console

import (
	"maps"
	"net/http"
	"net/url"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// confirmField is the password with which a user confirms what a form asks for.
const confirmField = "confirm-password"

// confirmSessionPage asks the user of a session for password or passkey. What was
// typed before goes along in the form, so that it need not be typed again.
type confirmSessionPage struct {
	Action, Back string
	Fields       url.Values
	Passkey      bool // the user has one
}

var confirmSessionTab = &tab{name: "confirm-session", title: "Confirm that it is you"}

func (c *Console) confirm(w http.ResponseWriter, v *visit) error {
	return c.askToConfirm(w, v, http.StatusOK, "")
}

// act performs an action of a user, who may give the password along with it.
func (c *Console) act(w http.ResponseWriter, v *visit, a action) error {
	if !v.signedIn() || !v.r.PostForm.Has(confirmField) {
		return a(w, v)
	}
	session, err := c.SignIn.Confirm(v.ctx, v.Session, v.r.PostFormValue(confirmField))
	if err != nil {
		status, text := c.explain(w, v.r, err)
		return c.askToConfirm(w, v, status, text)
	}
	v.in(session)
	return a(w, v)
}

// askToConfirm shows a form that does what the request asked for, with the password
// added.
func (c *Console) askToConfirm(w http.ResponseWriter, v *visit, status int, fault string) error {
	p := confirmSessionPage{
		Action: v.r.URL.EscapedPath(), Back: settingsPath, Fields: maps.Clone(v.r.Form), Passkey: len(c.SignIn.Passkeys(v.User.ID)) > 0,
	}
	delete(p.Fields, confirmField)
	return c.showFault(w, v, confirmSessionTab, status, p, fault)
}

// confirmed leads on, after act or confirmByPasskey has seen to it.
func (c *Console) confirmed(w http.ResponseWriter, v *visit) error {
	if err := v.Manage.Confirmed(v.ctx); err != nil {
		return err
	}
	return c.done(w, v, localPath(v.r.FormValue("next")), "Confirmed. For the next five minutes you are not asked again.")
}

func (c *Console) confirmByPasskey(w http.ResponseWriter, v *visit) error {
	answer, err := readAnswer(v.r)
	if err != nil {
		return err
	}
	if _, err := c.SignIn.ConfirmByPasskey(v.ctx, v.Session, c.ClientIP(v.r), origin(v.r), answer.Ceremony, answer.Response); err != nil {
		return err
	}
	manage.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}
