package console

import (
	"bytes"
	"cmp"
	"errors"
	"html"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
	"github.com/postern-dev/postern/caddymodule/signin/oidc"
	"github.com/postern-dev/postern/caddymodule/store"
)

// frame is the data of the layout.
type frame struct {
	Title   string
	Page    string        // name of the tab
	Main    template.HTML // rendered by a template of ours, and escaped by it
	Notice  string
	Fault   string
	Section string // current entry of the navigation, "" without navigation
	Edges   bool   // the navigation shows the edges of the cluster
	User    string
	Account string // "" if there is only the default one
	Events  string // URL of the stream of live regions
	Version string // for signed-in users
}

// section is an entry of the navigation.
type section struct{ Name, Title string }

var sections = []section{
	{"home", "Home"},
	{"start", "Setup"},
	{"models", "Models"},
	{"keys", "Keys"},
	{"groups", "Groups"},
	{"connectors", "Connectors"},
	{"usage", "Usage"},
	{"activity", "Activity"},
	{"edges", "Edges"},
	{"settings", "Settings"},
}

// sectionsFor returns the entries that a role allows.
func (c *Console) sectionsFor(may func(operation string) bool) func() []section {
	allowed := slices.DeleteFunc(slices.Clone(sections), func(s section) bool {
		operation := c.operations["GET /console/"+s.Name]
		return operation != ownThings && !may(operation)
	})
	return func() []section { return allowed }
}

// sectionOf returns the entry of the navigation for a path.
func sectionOf(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/console/"), "/")
	within := map[string]string{"pairings": "start", "confirm": "settings", "audit": "settings", "people": "keys"}
	return cmp.Or(within[name], name, path)
}

// loadTemplates returns the templates for users of each role. In them, may reports whether the role
// allows an operation of the management API.
func (c *Console) loadTemplates(a assets) map[store.Role]*template.Template {
	all := make(map[store.Role]*template.Template)
	for _, role := range append(store.Roles(), "") { // "" is without a session
		all[role] = c.loadRoleTemplates(a, func(operation string) bool { return manage.RoleMay(role, operation) })
	}
	return all
}

// loadRoleTemplates returns the templates for users who may perform the operations that may reports.
func (c *Console) loadRoleTemplates(a assets, may func(operation string) bool) *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"asset": a.url, "count": count, "cut": cut, "millis": millis, "seconds": seconds, "short": short,
		"shortCount": shortCount, "decimal": decimal, "sentence": sentence, "prose": prose,
		"sections": c.sectionsFor(may), "may": may,
		"roles": store.Roles, "role": func(r store.Role) string { return roleTexts[r] },
		"has": slices.Contains[[]string], "join": strings.Join,
		"authors": authors, "passkeyID": passkeyID, "browser": browserOf,
		"confirm": func(verb, name, back string) confirmRow { return confirmRow{verb + " " + name, "/console/" + back} },
		"rights":  rightsFor(may),
		"request": dialect.RequestLine,
		"future":  future,
		"method":  func(name string) string { return sessionMethods[name] },
		"issuer":  issuerPath,
		"program": func() string { return program.Name },
		"manual":  func() string { return program.Manual },
		"release": func(version string) string { return strings.SplitN(version, "+", 2)[0] }, // without the commit
		"kinds":   func() []store.ModelKind { return store.ModelKinds },
		"right":   func(name string) string { return rightTexts[name] },
	}).ParseFS(templateFiles, "templates/*.html"))
}

// future returns a time that has not come yet, else nil.
func future(t *time.Time) *time.Time {
	if t != nil && !t.After(time.Now()) {
		return nil
	}
	return t
}

// show renders tab t in its frame, unless err is an error.
func (v *visit) show(t *tab, data any, err error) error {
	if err != nil {
		return err
	}
	return v.showFault(t, http.StatusOK, data, "")
}

// showFault renders tab t with a message about a failure. It writes a whole page, or
// nothing and returns an error.
func (v *visit) showFault(t *tab, status int, data any, fault string) error {
	f := frame{Title: t.title, Page: t.name, Fault: fault, Notice: v.takeNotice()}
	if v.usageMissing && t.name != "home" { // its alerts name it
		f.Fault = cmp.Or(fault, noUsage)
	}
	if named, ok := data.(interface{ pageTitle() string }); ok {
		f.Title = named.pageTitle()
	}
	if v.signedIn() && !t.noSections {
		f.Section, f.User, f.Version = sectionOf(v.r.URL.Path), v.User.Name, v.Manage.Build().Version
		f.Edges = v.Manage.MayEdges(v.ctx) == nil
		if v.Account != store.DefaultAccount {
			f.Account = v.Account
		}
	}
	if t.live != nil {
		f.Events = "/console/events/" + t.name
		if q := v.r.URL.RawQuery; q != "" {
			f.Events += "?" + q
		}
	}
	var main bytes.Buffer
	if err := v.templates[v.User.Role].ExecuteTemplate(&main, t.name, data); err != nil {
		return err
	}
	page := main.String()
	if v.badField != "" && fault != "" {
		page, f.Fault = markField(page, v.badField, fault)
	}
	f.Main = template.HTML(page)
	return v.write(status, "layout", f)
}

var (
	focused = regexp.MustCompile(`(<(?:input|select|textarea) [^>]*) autofocus`)
	labels  = regexp.MustCompile(`<(?:label|legend)[^>]*>([^<]+)`)
)

// markField marks the first control with a name as invalid, in a page of a template: its attributes contain no ">". It
// returns the page, and the message with the label of the control, which is before it. It opens the details around the
// control.
func markField(page, field, fault string) (marked, message string) {
	name := ` name="` + strings.ReplaceAll(template.HTMLEscapeString(field), "+", "&#43;") + `"`
	head, rest, found := strings.Cut(focused.ReplaceAllString(page, "$1"), name)
	if all := labels.FindAllStringSubmatch(head, -1); found && len(all) > 0 {
		label := strings.TrimSpace(html.UnescapeString(all[len(all)-1][1]))
		if !strings.HasSuffix(fault, " "+strings.ToLower(label)+".") { // as in "Wrong name or password."
			fault = label + ": " + fault
		}
	}
	if i := strings.LastIndex(head, "<details"); i > strings.LastIndex(head, "</details>") {
		opening, inside, _ := strings.Cut(head[i:], ">")
		head = head[:i] + strings.TrimSuffix(opening, " open") + " open>" + inside
	}
	tag, rest, closed := strings.Cut(rest, ">")
	if !closed {
		return page, fault
	}
	if !strings.Contains(tag, `aria-describedby="`) {
		tag += ` aria-describedby=""`
	}
	tag = strings.Replace(tag, `aria-describedby="`, `aria-describedby="fault `, 1)
	return head + name + ` aria-invalid="true" autofocus` + tag + ">" + rest, fault
}

// write renders one template, or writes nothing and returns an error.
func (v *visit) write(status int, name string, data any) error {
	var page bytes.Buffer
	if err := v.templates[v.User.Role].ExecuteTemplate(&page, name, data); err != nil {
		return err
	}
	v.writePage(status, page.Bytes())
	return nil
}

func (v *visit) writePage(status int, page []byte) {
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(page)))
	v.w.WriteHeader(status)
	_, _ = v.w.Write(page) // fails only if the client has gone
}

// done redirects the browser to path, which shows the notice, unless err is an error. A
// change that edges have not confirmed is made, and the notice names them.
func (v *visit) done(path, notice string, err error) error {
	if !store.Committed(err) {
		return err
	}
	v.leaveNotice(withPending(notice, err))
	if isHTMX(v.r) {
		v.w.Header().Set("HX-Redirect", path)
		v.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return v.redirect(path)
}

// withPending adds the edges that have not confirmed the change to a notice, if err is [store.Unconfirmed].
func withPending(notice string, err error) string {
	if u, ok := errors.AsType[*store.Unconfirmed](err); ok {
		notice += " But " + u.Error() + "."
	}
	return notice
}

// redirect sends the browser to another page.
func (v *visit) redirect(path string) error {
	http.Redirect(v.w, v.r, path, http.StatusSeeOther)
	return nil
}

// isHTMX reports whether the request is from htmx, which expects a part of a page.
func isHTMX(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// fail responds with an error: on the tab of the action, with the user's input, if
// the user can correct it.
func (v *visit) fail(err error) {
	status, text := v.explain(err)
	v.respond(status, text, err)
}

// respond is fail with this status and message.
func (v *visit) respond(status int, text string, err error) {
	if wait := manage.RetryAfter(err); wait != "" {
		v.w.Header().Set("Retry-After", wait)
	}
	switch {
	case isHTMX(v.r):
		v.failPart(status, text)
		return
	case wantsJSON(v.r):
		manage.WriteError(v.w, status, text, err)
		return
	case errors.Is(err, manage.ErrUnconfirmed):
		if v.askToConfirm(http.StatusForbidden, "") == nil {
			return
		}
	case v.errorTab != nil && status < http.StatusInternalServerError:
		data, failed := v.errorTab.read(v)
		if failed == nil && v.showFault(v.errorTab, status, data, text) == nil {
			return
		}
	}
	v.failPage(status, text, err)
}

// failPart responds to htmx with a notice in place of the requested part.
func (v *visit) failPart(status int, text string) {
	v.writePage(status, []byte(`<p class="notice notice-bad" role="alert">`+string(prose(text))+"</p>"))
}

// failTitles are the titles of error pages.
var failTitles = map[int]string{
	http.StatusBadRequest: "Invalid request", http.StatusNotFound: "Not found", http.StatusForbidden: "Not allowed",
	http.StatusMethodNotAllowed: "Method not allowed", http.StatusTooManyRequests: "Too many attempts",
	http.StatusRequestEntityTooLarge: "Too large",
	http.StatusServiceUnavailable:    "Unavailable",
}

// failPage renders an error page. Conflicts and failures at issuers have the kind of the error as their title, such as
// "Limit reached".
func (v *visit) failPage(status int, text string, err error) {
	title := cmp.Or(failTitles[status], "Something went wrong")
	_, atIssuer := errors.AsType[*oidc.Failure](err)
	for ; err != nil && (status == http.StatusConflict || atIssuer); err = errors.Unwrap(err) {
		title = strings.TrimSuffix(sentence(err.Error()), ".")
	}
	t := &tab{name: "error", title: title}
	data := map[string]any{"Title": t.title, "Text": text, "Signed": v.signedIn()}
	if err := v.showFault(t, status, data, ""); err != nil {
		v.Logger.Error("failed to render a page", "page", "error", "error", err)
		http.Error(v.w, text, status)
	}
}

// explain returns the status of an error, and a message for the user. Hidden errors
// are logged; the user does not see them.
func (v *visit) explain(err error) (status int, text string) {
	if wait := manage.RetryAfter(err); wait != "" {
		v.w.Header().Set("Retry-After", wait)
	}
	if errors.As(err, new(*http.MaxBytesError)) {
		return http.StatusRequestEntityTooLarge, "The form is too large. Shorten your input."
	}
	if manage.Hidden(err) && v.r.Context().Err() == nil {
		v.Logger.Error("console request failed", "method", v.r.Method, "path", v.r.URL.Path, "error", err)
	}
	if status, text = manage.Explain(err); !manage.Hidden(err) {
		v.badField, text = store.FieldOf(err)
		v.badField = cmp.Or(v.badField, v.signInField(err))
		text = strings.TrimPrefix(strings.TrimPrefix(text, "the "+v.badField+": "), v.badField+": ")
	}
	return status, sentence(text)
}

// nowhere responds to unknown paths and methods.
func nowhere(v *visit) error {
	status, text := http.StatusNotFound, "Page not found."
	if allowed := v.allowed(v.r); allowed != "" {
		v.w.Header().Set("Allow", allowed)
		status, text = http.StatusMethodNotAllowed, "This address does not accept "+v.r.Method+"."
	}
	switch {
	case isHTMX(v.r):
		v.failPart(status, text)
	case status == http.StatusNotFound && isModelClient(v.r):
		v.misdirected()
	default:
		v.failPage(status, text, nil)
	}
	return nil
}

// isModelClient reports whether a request may be from a client of models, whose base URL was copied
// from the browser and is that of the console.
func isModelClient(r *http.Request) bool {
	accept, sent := r.Header.Get("Accept"), r.Header.Get("Content-Type")
	form := strings.HasPrefix(sent, "application/x-www-form-urlencoded") || strings.HasPrefix(sent, "multipart/form-data")
	return !strings.Contains(accept, "text/html") &&
		(r.Method == http.MethodPost && !form || strings.Contains(accept, "application/json"))
}

// misdirected answers a client of models, in the dialect of its path, with the right base URL.
func (v *visit) misdirected() {
	path := "/v1" + strings.TrimPrefix(strings.TrimPrefix(v.r.URL.Path, "/console"), "/v1")
	d, e := dialect.OfPath(path, v.r.Header), dialect.NoVersion(v.r.Method, v.r.URL.Path, v.endpoint().URL+"/v1")
	h := v.w.Header()
	maps.Copy(h, e.Header())
	h.Set("Content-Type", "application/json")
	v.w.WriteHeader(e.HTTPStatus(d))
	_, _ = v.w.Write(e.Body(d, dialect.NewRequestID())) // fails only if the client has gone
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
