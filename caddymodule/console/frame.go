package console

import (
	"bytes"
	"cmp"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

// frame is the data of the layout.
type frame struct {
	Title   string
	Main    template.HTML // rendered by a template of ours, and escaped by it
	Nav     []navItem     // nil on pages without a session
	User    string
	Account string // "" if there is only the default one
	Notice  string
	Fault   string
	Events  string // URL of the stream of live regions
	Plots   bool   // the page draws plots
	Passkey bool   // the page has buttons for passkeys
	Version string // for signed-in users
}

type navItem struct {
	Title, URL string
	Current    bool
}

// sections are the entries of the navigation: one for each main tab.
var sections = [...]struct{ name, title string }{
	{"start", "Setup"}, {"models", "Models"}, {"keys", "Keys"}, {"connectors", "Connectors"}, {"activity", "Activity"}, {"settings", "Settings"},
}

func loadTemplates(a assets) (*template.Template, error) {
	return template.New("").Funcs(template.FuncMap{
		"asset": a.url, "count": count, "millis": millis, "decimal": decimal, "sentence": sentence,
		"has": slices.Contains[[]string], "names": namesOf, "passkeyID": passkeyID, "browser": browserOf, "optionField": optionField,
		"method": func(name string) string { return sessionMethods[name] },
		"rights": store.RightNames, "right": func(name string) string { return rightTexts[name] },
	}).ParseFS(templateFiles, "templates/*.html")
}

// show renders tab t in its frame.
func (c *Console) show(w http.ResponseWriter, v *visit, t *tab, status int, data any) error {
	return c.showFault(w, v, t, status, data, "")
}

// showFault is show with a message about a failure.
func (c *Console) showFault(w http.ResponseWriter, v *visit, t *tab, status int, data any, fault string) error {
	f := v.frame(t.title)
	f.Fault, f.Notice = fault, takeNotice(w, v.r)
	f.Plots, f.Passkey = t.name == "activity", t.name == "settings" || t.name == "confirm-session"
	if len(t.live) > 0 && c.tabs[t.name] != nil {
		f.Events = "/console/events/" + t.name
		if q := v.r.URL.RawQuery; q != "" {
			f.Events += "?" + q
		}
	}
	return c.render(w, status, t.name, data, f)
}

// frame returns the frame of a page.
func (v *visit) frame(title string) frame {
	if !v.signedIn() {
		return frame{Title: title}
	}
	f := frame{Title: title, Nav: navigation(v.r.URL.Path), User: v.User.Name, Version: v.Manage.Build().Version}
	if v.Account != store.DefaultAccount {
		f.Account = v.Account
	}
	return f
}

// render writes a whole page, or nothing and an error.
func (c *Console) render(w http.ResponseWriter, status int, name string, data any, f frame) error {
	var main bytes.Buffer
	if err := c.templates.ExecuteTemplate(&main, name, data); err != nil {
		return err
	}
	f.Main = template.HTML(main.String())
	return c.write(w, status, "layout", f)
}

// write renders one template, or writes nothing and returns an error.
func (c *Console) write(w http.ResponseWriter, status int, name string, data any) error {
	var page bytes.Buffer
	if err := c.templates.ExecuteTemplate(&page, name, data); err != nil {
		return err
	}
	writePage(w, status, page.Bytes())
	return nil
}

func writePage(w http.ResponseWriter, status int, page []byte) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(status)
	_, _ = w.Write(page) // fails only if the client has gone
}

// done redirects the browser to path, which shows the notice.
func (c *Console) done(w http.ResponseWriter, v *visit, path, notice string) error {
	leaveNotice(w, v.r, notice)
	if isHTMX(v.r) {
		w.Header().Set("HX-Redirect", path)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return v.redirect(w, path)
}

// redirect sends the browser to another page.
func (v *visit) redirect(w http.ResponseWriter, path string) error {
	http.Redirect(w, v.r, path, http.StatusSeeOther)
	return nil
}

// isHTMX reports whether the request is from htmx, which expects a part of a page.
func isHTMX(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// tabFault is an error that is shown on a tab.
type tabFault struct {
	tab *tab
	err error
}

func (f *tabFault) Error() string { return f.err.Error() }
func (f *tabFault) Unwrap() error { return f.err }

// fault returns an error that is shown on tab t, with the user's input. Internal
// errors still get a separate page.
func (v *visit) fault(t *tab, err error) error { return &tabFault{t, err} }

// fail responds with an error.
func (c *Console) fail(w http.ResponseWriter, v *visit, err error) {
	status, text := c.explain(w, v.r, err)
	var on *tabFault
	switch {
	case isHTMX(v.r):
		failPart(w, status, text)
		return
	case wantsJSON(v.r):
		manage.WriteError(w, status, text, err)
		return
	case errors.Is(err, manage.ErrUnconfirmed):
		if c.askToConfirm(w, v, http.StatusForbidden, "") == nil {
			return
		}
	case errors.As(err, &on) && status < http.StatusInternalServerError && on.tab.data != nil:
		data, dataErr := on.tab.data(v)
		if dataErr == nil {
			dataErr = c.showFault(w, v, on.tab, status, data, text)
		}
		if dataErr == nil {
			return
		}
	}
	c.failPage(w, v, status, text)
}

// failPart responds to htmx with a notice in place of the requested part.
func failPart(w http.ResponseWriter, status int, text string) {
	writePage(w, status, []byte(`<p class="notice notice-bad" role="alert">`+template.HTMLEscapeString(text)+"</p>"))
}

// failTitles are the titles of error pages.
var failTitles = map[int]string{
	http.StatusBadRequest: "Invalid request", http.StatusNotFound: "Not found", http.StatusForbidden: "Not allowed",
	http.StatusMethodNotAllowed: "Method not allowed", http.StatusTooManyRequests: "Too many attempts", http.StatusConflict: "Not possible now",
	http.StatusRequestEntityTooLarge: "Too large", http.StatusServiceUnavailable: "Unavailable",
}

// failPage renders an error page.
func (c *Console) failPage(w http.ResponseWriter, v *visit, status int, text string) {
	f := v.frame(cmp.Or(failTitles[status], "Something went wrong"))
	data := map[string]any{"Title": f.Title, "Text": text, "Signed": f.Nav != nil}
	if err := c.render(w, status, "error", data, f); err != nil {
		c.Logger.Error("failed to render a page", "page", "error", "error", err)
		http.Error(w, text, status)
	}
}

// explain returns the status of an error, and a message for the user. Internal
// errors are logged; the user does not see them.
func (c *Console) explain(w http.ResponseWriter, r *http.Request, err error) (status int, text string) {
	var throttled *signin.ThrottledError
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &throttled):
		w.Header().Set("Retry-After", throttled.Seconds())
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge, "The form is too large. Shorten your input."
	}
	if status := manage.StatusOf(err); status != http.StatusInternalServerError {
		return status, sentence(err.Error())
	}
	if r.Context().Err() == nil {
		c.Logger.Error("console request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	return http.StatusInternalServerError, "The gateway failed to do this. Its log has the reason."
}

// nowhere responds to unknown paths and methods.
func (c *Console) nowhere(w http.ResponseWriter, v *visit) error {
	status, text := http.StatusNotFound, "Page not found."
	if allowed := c.allowed(v.r); allowed != "" {
		w.Header().Set("Allow", allowed)
		status, text = http.StatusMethodNotAllowed, "This address does not accept "+v.r.Method+"."
	}
	if isHTMX(v.r) {
		failPart(w, status, text)
	} else {
		c.failPage(w, v, status, text)
	}
	return nil
}

// allowed lists the methods that the path of r accepts.
func (c *Console) allowed(r *http.Request) string {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		other := &http.Request{Method: method, URL: &url.URL{Path: r.URL.Path}, Host: r.Host}
		if _, pattern := c.mux.Handler(other); pattern != "/" && pattern != "" {
			methods = append(methods, method)
		}
	}
	return strings.Join(methods, ", ")
}

// navigation returns the main tabs. The one of path is marked as current.
func navigation(path string) []navItem {
	section, _, _ := strings.Cut(strings.TrimPrefix(path, "/console/"), "/")
	switch section {
	case "pairings":
		section = "start"
	case "confirm":
		section = "settings"
	}
	items := make([]navItem, 0, len(sections))
	for _, s := range sections {
		items = append(items, navItem{Title: s.title, URL: "/console/" + s.name, Current: s.name == section})
	}
	return items
}
