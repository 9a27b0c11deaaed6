package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// visit is one request; the zero User and Session are those of a client that is not
// signed in.
type visit struct {
	*Console
	r       *http.Request
	User    store.User
	Session store.Session
	Account string
	ctx     context.Context // carries the manage.Caller
}

// tab is one page. Template name is its main part, and there is one template
// for each of its live regions; the element around region x has the id live-x.
type tab struct {
	name, title string
	data        func(v *visit) (any, error)
	live        []string
	every       time.Duration // how often regions are drawn again without a change; 0 means seldom
}

// action answers a request. It returns an error instead of answering: one of
// fault is shown on its tab, any other on a page of its own.
type action func(w http.ResponseWriter, v *visit) error

// page answers with a tab that no form was sent to.
func (c *Console) page(t *tab) action {
	return func(w http.ResponseWriter, v *visit) error {
		data, err := t.data(v)
		if err != nil {
			return err
		}
		return c.show(w, v, t, http.StatusOK, data)
	}
}

// form does what a form asks for. The browser then goes to the page at path, which
// shows the notice; an error is shown on the tab from.
func (c *Console) form(from *tab, path string, do func(v *visit) (notice string, err error)) action {
	return func(w http.ResponseWriter, v *visit) error {
		notice, err := do(v)
		if err != nil {
			return v.fault(from, err)
		}
		return c.done(w, v, path, notice)
	}
}

// answer shows on the tab t what a form asks for; an error is shown on the tab
// from. It is for secrets: one that is to be shown after a redirect would have to
// be kept somewhere.
func (c *Console) answer(from, t *tab, do func(v *visit) (any, error)) action {
	return func(w http.ResponseWriter, v *visit) error {
		data, err := do(v)
		if err != nil {
			return v.fault(from, err)
		}
		return c.show(w, v, t, http.StatusOK, data)
	}
}

// find returns the record of the account for which is holds. missing is
// the text if there is none.
func find[T any](v *visit, list func(ctx context.Context) ([]T, error), is func(T) bool, missing string) (T, error) {
	var none T
	records, err := list(v.ctx)
	if err != nil {
		return none, err
	}
	i := slices.IndexFunc(records, is)
	if i < 0 {
		return none, notThere(missing)
	}
	return records[i], nil
}

func badForm(text string) error  { return store.Errorf(store.ErrInvalid, "%s", text) }
func notThere(text string) error { return store.Errorf(store.ErrNotFound, "%s", text) }

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

// endpoint is how the gateway is reached. Where its configuration does not
// name it, it is reached as the console is.
func (v *visit) endpoint() manage.Endpoint {
	at := v.Manage.Endpoint()
	if at.URL == "" {
		scheme := "http"
		if v.r.TLS != nil {
			scheme = "https"
		}
		at.URL = scheme + "://" + v.r.Host
	}
	return at
}
