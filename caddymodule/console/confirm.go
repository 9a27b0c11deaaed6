package console

import (
	"maps"
	"net/http"
	"net/url"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// confirmField is the form field of the password that confirms an action.
const confirmField = "confirm-password"

// confirmSessionPage asks the user of a session for a password or a passkey. The
// form carries the fields of the original request.
type confirmSessionPage struct {
	Action, Back string
	Fields       url.Values
	Passkey      bool // the user has one
}

var confirmSessionTab = &tab{name: "confirm-session", title: "Confirm that it is you"}

func (c *Console) confirm(w http.ResponseWriter, v *visit) error {
	return c.askToConfirm(w, v, http.StatusOK, "")
}

// act performs an action. The request may carry the password that confirms it.
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

// askToConfirm shows a form that repeats the request with the password added.
func (c *Console) askToConfirm(w http.ResponseWriter, v *visit, status int, fault string) error {
	p := confirmSessionPage{
		Action: v.r.URL.EscapedPath(), Back: settingsPath, Fields: maps.Clone(v.r.Form), Passkey: len(c.SignIn.Passkeys(v.User.ID)) > 0,
	}
	delete(p.Fields, confirmField)
	return c.showFault(w, v, confirmSessionTab, status, p, fault)
}

// confirmed redirects to the next page, after act or confirmByPasskey.
func (c *Console) confirmed(w http.ResponseWriter, v *visit) error {
	if err := v.Manage.Confirmed(v.ctx); err != nil {
		return err
	}
	return c.done(w, v, localPath(v.r.FormValue("next")), "Confirmed. You will not be asked again for five minutes.")
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
