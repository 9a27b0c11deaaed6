package console

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for zone
	"unicode"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// visit is one request. User and Session are zero without a session.
type visit struct {
	*Console
	w        http.ResponseWriter
	r        *http.Request
	ctx      context.Context // carries the manage.Caller
	User     store.User
	Session  store.Session
	Account  string
	errorTab *tab   // shows the error of the action, with the user's input; may be nil
	err      error  // the first of load
	badField string // of the form, which has an error
	// usageMissing means that loadUsed could not read the usage.
	usageMissing bool
}

// tab is one page. The template called name renders its main part, and one template
// each of its live regions; the element around region x has the id live-x.
type tab struct {
	path        string // below /console/; "" if only actions show it
	name, title string
	data        func(v *visit) any // the page is not shown if it sets v.err
	errorTab    *tab               // shows the errors of data; may be nil
	live        []string
	refresh     time.Duration // between two renderings without a change; 0: liveRefresh
	pause       time.Duration // between two renderings; 0: livePause
	noSections  bool          // without navigation, even for signed-in users
}

func (t *tab) url() string { return "/console/" + t.path }

// askTab returns a tab that asks before an action: a POST to its address. Its template uses "confirm-row".
func askTab[T any](path, name, title string, about func(v *visit) T) *tab {
	return &tab{path: path, name: name, title: title, data: func(v *visit) any { return about(v) }}
}

// confirmRow is the end of a form that asks: a button with a label, and a link back.
type confirmRow struct{ Label, Back string }

// read returns the data of a tab.
func (t *tab) read(v *visit) (any, error) {
	v.err, v.usageMissing = nil, false
	data := t.data(v)
	return data, v.err
}

// open is the action that shows a tab.
func (t *tab) open(v *visit) error {
	data, err := t.read(v)
	return v.show(t, data, err)
}

// action responds to a request, or returns an error.
type action func(v *visit) error

// load reads something for a page. After the first error, it reads nothing.
func load[T any](v *visit, read func(ctx context.Context) (T, error)) T {
	var value T
	if v.err == nil {
		value, v.err = read(v.ctx)
	}
	return value
}

// loadUsed loads how much is used. The page is shown without it if the gateway cannot reach its store.
func loadUsed[T any](v *visit, read func(ctx context.Context) (T, error)) (value T) {
	if v.err != nil {
		return value
	}
	if value = load(v, read); errors.Is(v.err, store.ErrUnavailable) {
		v.err, v.usageMissing = nil, true
	}
	return value
}

// find loads the first record of the account that match accepts. missing is the text of
// the error if there is none.
func find[T any](v *visit, list func(ctx context.Context) ([]T, error), match func(T) bool, missing string) T {
	return load(v, func(ctx context.Context) (found T, err error) {
		records, err := list(ctx)
		if err != nil {
			return found, err
		}
		if i := slices.IndexFunc(records, match); i >= 0 {
			return records[i], nil
		}
		return found, notThere(missing)
	})
}

// id returns the id in the path.
func (v *visit) id() string { return v.r.PathValue("id") }

// typed returns a field of the submitted form.
func (v *visit) typed(field string) string { return v.r.PostFormValue(field) }

func badForm(text string) error         { return store.Errorf(store.ErrInvalid, "%s", text) }
func badField(field, text string) error { return store.InField(field, badForm(text)) }
func notThere(text string) error        { return store.Errorf(store.ErrNotFound, "%s", text) }

// sentence returns the text of an error with a capital letter and a full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.ContainsAny(text[len(text)-1:], ".!?`)") {
		text += "."
	}
	return text
}

// prose returns the text of a message as HTML: escaped, and with code in backticks marked
// up as code.
func prose(text string) template.HTML {
	var b strings.Builder
	parts := strings.Split(template.HTMLEscapeString(text), "`")
	for i, part := range parts {
		switch {
		case i%2 == 0:
			b.WriteString(part)
		case i == len(parts)-1: // without a second backtick
			b.WriteString("`" + part)
		default:
			b.WriteString("<code>" + part + "</code>")
		}
	}
	return template.HTML(b.String())
}

// endpoint returns the address of the gateway. It defaults to the address of the
// console.
func (v *visit) endpoint() manage.Endpoint {
	e := v.Manage.Endpoint()
	e.URL = cmp.Or(e.URL, origin(v.r))
	return e
}

// privateAuthority reports whether clients have to trust the authority of the gateway's
// certificate first.
func (v *visit) privateAuthority() bool {
	e := v.endpoint()
	return !e.Verified && strings.HasPrefix(e.URL, "https://")
}

// zone returns the time zone of the browser, which a script keeps in a cookie; UTC without one.
func (v *visit) zone() *time.Location {
	if cookie, err := v.r.Cookie(zoneCookie); err == nil {
		if zone, err := time.LoadLocation(cookie.Value); err == nil {
			return zone
		}
	}
	return time.UTC
}

// localNow returns the time in the zone of the browser.
func (v *visit) localNow() time.Time { return v.Now().In(v.zone()) }

// midnight returns the hour in which the day of the browser began, in UTC. Usage is kept by the hour.
func (v *visit) midnight() time.Time {
	year, month, day := v.localNow().Date()
	return time.Date(year, month, day, 0, 0, 0, 0, v.zone()).UTC().Truncate(time.Hour)
}

// authorsOf returns who created, rotated or last changed a record that management tokens can write.
func authorsOf(record any) []store.Actor {
	switch r := record.(type) {
	case manage.Key:
		list := []store.Actor{r.CreatedBy, r.Changer()}
		if r.RotatedBy != nil {
			list = append(list, *r.RotatedBy)
		}
		return list
	case manage.Connector:
		return []store.Actor{r.CreatedBy, r.ChangedBy}
	case manage.Deployment:
		return []store.Actor{r.CreatedBy, r.ChangedBy}
	}
	return nil
}

// authors lists the names of [authorsOf] for a row of a list.
func authors(record any) string {
	var names []string
	for _, a := range authorsOf(record) {
		if name := a.Label(); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// authorText returns the text in which a search finds a record by its authors: their names, and the ids of their
// tokens, which outlast the tokens.
func authorText(record any) string {
	texts := []string{authors(record)}
	for _, a := range authorsOf(record) {
		texts = append(texts, a.Token)
	}
	return strings.Join(texts, "\n")
}
