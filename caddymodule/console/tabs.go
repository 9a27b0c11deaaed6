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

// visit is one request. User and Session are zero without a session.
type visit struct {
	*Console
	r       *http.Request
	User    store.User
	Session store.Session
	Account string
	ctx     context.Context // carries the manage.Caller
}

// tab is one page. The template called name renders its main part, and one template
// each of its live regions; the element around region x has the id live-x.
type tab struct {
	name, title string
	data        func(v *visit) (any, error)
	live        []string
	every       time.Duration // interval of redraws without a change; 0 means seldom
}

// action responds to a request, or returns an error. An error of fault is shown on
// its tab, any other on a separate page.
type action func(w http.ResponseWriter, v *visit) error

// page returns the action that shows a tab.
func (c *Console) page(t *tab) action {
	return func(w http.ResponseWriter, v *visit) error {
		data, err := t.data(v)
		if err != nil {
			return err
		}
		return c.show(w, v, t, http.StatusOK, data)
	}
}

// form returns the action of a form. It redirects to path, which shows the notice;
// an error is shown on the tab from.
func (c *Console) form(from *tab, path string, do func(v *visit) (notice string, err error)) action {
	return func(w http.ResponseWriter, v *visit) error {
		notice, err := do(v)
		if err != nil {
			return v.fault(from, err)
		}
		return c.done(w, v, path, notice)
	}
}

// answer returns the action of a form whose result is shown on tab t; an error is
// shown on the tab from. It is for secrets: to show one after a redirect, the
// gateway would have to store it.
func (c *Console) answer(from, t *tab, do func(v *visit) (any, error)) action {
	return func(w http.ResponseWriter, v *visit) error {
		data, err := do(v)
		if err != nil {
			return v.fault(from, err)
		}
		return c.show(w, v, t, http.StatusOK, data)
	}
}

// find returns the first record of the account for which is returns true. missing is
// the text of the error if none does.
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

// sentence returns the text of an error with a capital letter and a full stop.
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

// endpoint returns the address of the gateway. It defaults to the address of the
// console.
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
