package console

import (
	"net/http"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// userFault is an error that the pages find themselves. Its kind is that of
// the operations' errors, so that it is shown in the same way.
type userFault struct {
	kind error
	text string
}

func (f *userFault) Error() string { return f.text }
func (f *userFault) Unwrap() error { return f.kind }

func badForm(text string) error  { return &userFault{store.ErrInvalid, text} }
func notThere(text string) error { return &userFault{store.ErrNotFound, text} }

// sentence makes a sentence of an error's text, which begins with a small
// letter and has no full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.ContainsAny(text[len(text)-1:], ".!?`)") {
		text += "."
	}
	return text
}

// page answers with a tab that no form was sent to.
func (c *Console) page(t func() *tab) action {
	return func(w http.ResponseWriter, v *visit) error {
		t := t()
		data, err := t.data(v)
		if err != nil {
			return err
		}
		return c.show(w, v, t, http.StatusOK, data)
	}
}

// endpoint is how the gateway is reached. Where its configuration does not
// tell, it is reached as the console is.
func (v *visit) endpoint() manage.Endpoint {
	status := v.manage.Status(v.ctx)
	at := manage.Endpoint{URL: status.URL, Public: status.Listener.Public, Pin: status.Listener.Pin}
	if at.URL == "" {
		scheme := "http"
		if v.r.TLS != nil {
			scheme = "https"
		}
		at.URL = scheme + "://" + v.r.Host
	}
	return at
}
