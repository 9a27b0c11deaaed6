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
	Action  string
	Fields  url.Values
	Passkey bool // the user has one
}

var confirmSessionTab = &tab{name: "confirm-session", title: "Confirm that it is you"}

func confirm(v *visit) error { return v.askToConfirm(http.StatusOK, "") }

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
	v.in(session)
	return do(v)
}

// askToConfirm shows a form that repeats the request with the password added.
func (v *visit) askToConfirm(status int, fault string) error {
	p := confirmSessionPage{Action: v.r.URL.EscapedPath(), Fields: maps.Clone(v.r.Form), Passkey: len(v.SignIn.Passkeys(v.User.ID)) > 0}
	delete(p.Fields, confirmField)
	return v.showFault(confirmSessionTab, status, p, fault)
}

// confirmed redirects to the next page, after act or confirmByPasskey.
func confirmed(v *visit) error {
	return v.done(localPath(v.r.FormValue("next")), "Confirmed. You will not be asked again for five minutes.", v.Manage.Confirmed(v.ctx))
}

func confirmByPasskey(v *visit) error {
	answer, err := readAnswer(v.r)
	if err != nil {
		return err
	}
	if _, err := v.SignIn.ConfirmByPasskey(v.ctx, v.Session, v.ClientIP(v.r), origin(v.r), answer.Ceremony, answer.Response); err != nil {
		return err
	}
	manage.WriteJSON(v.w, http.StatusOK, struct{}{})
	return nil
}
