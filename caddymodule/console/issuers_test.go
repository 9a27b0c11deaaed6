package console

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/signin/oidc"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/issuertest"
)

// office is a house whose people sign in by an issuer.
type office struct {
	*house
	fake   *issuertest.Issuer
	issuer *oidc.Issuer
}

const (
	startPath = "/console/sign-in/oidc/company"
	backPath  = startPath + "/callback"
)

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{house: newHouse(t), fake: issuertest.New(t)}
	o.issuer = o.newIssuer(o.fake, "company")
	o.configure(false, o.issuer)
	return o
}

func (o *office) newIssuer(fake *issuertest.Issuer, name string) *oidc.Issuer {
	o.Helper()
	c := oidc.Config{
		URL: fake.URL, ClientID: issuertest.ClientID, ClientSecret: "s3cret", Admins: []string{"ml-admins"},
		Members: []string{"team"}, Name: name,
	}
	must(o, c.Complete())
	p := oidc.NewProvider(c.URL, slog.New(slog.DiscardHandler))
	o.Cleanup(func() { _ = p.Destruct() })
	return &oidc.Issuer{Config: c, Provider: p, Redirect: RedirectTo(base, name)}
}

// configure loads a configuration with these issuers.
func (o *office) configure(localOff bool, issuers ...*oidc.Issuer) {
	policy := store.SignInPolicy{LocalOff: localOff}
	for _, i := range issuers {
		policy.Issuers = append(policy.Issuers, i.URL)
	}
	o.console.Issuers = issuers
	o.store.SetSignInPolicy(policy)
}

// leave opens the link to the issuer, and returns the address to which that sends the browser back.
func (b *browser) leave(path string, tweak ...func(*http.Request)) string {
	b.Helper()
	w := b.request(http.MethodGet, path, "", tweak...)
	if w.Code != http.StatusSeeOther {
		b.Fatalf("GET %s: %d %s", path, w.Code, mainPart(w.Body.String()))
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Get(w.Header().Get("Location"))
	must(b, err)
	_ = answer.Body.Close()
	back, err := answer.Location()
	must(b, err)
	return back.RequestURI()
}

// visit makes a whole flow.
func (b *browser) visit(path string) *httptest.ResponseRecorder {
	b.Helper()
	return b.get(b.leave(path))
}

// is checks who is signed in.
func (b *browser) is(name string, role store.Role) store.User {
	b.Helper()
	u, _ := b.store.User(b.userID())
	if u.Name != name || u.Role != role {
		b.Errorf("the browser is that of %q, a %q; want %s, %s", u.Name, u.Role, name, role)
	}
	return u
}

func TestIssuerSignIn(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := o.browser()
	has(t, b.page("/console/sign-in?next=/console/keys"), startPath+"?next=%2fconsole%2fkeys", "Sign in with company",
		"cannot be reached at the moment")
	back := b.leave(startPath + "?next=/console/keys%3Fq=a")
	lacks(t, b.page("/console/sign-in"), "cannot be reached")
	var kept *http.Cookie
	for name, c := range b.cookies {
		if kept = c; !strings.HasPrefix(name, "__Host-postern-oidc-") || len(name) != 20+8 {
			t.Errorf("the cookie is %s", name)
		}
	}
	if !kept.Secure || !kept.HttpOnly || kept.SameSite != http.SameSiteLaxMode || kept.Path != "/" || kept.MaxAge != 900 ||
		len(kept.String()) > 1000 {
		t.Errorf("%v", kept)
	}
	b.goes(b.get(back), "/console/keys?q=a")
	ann := b.is("ann", store.RoleMember)
	if len(b.cookies) != 1 || !b.cookies["__Host-postern"].Secure {
		t.Errorf("%v", b.cookies)
	}
	b.goes(b.get(back), "/console/") // back, reload or a double click

	// With the cookie put back, the answer is refused, here and in another browser.
	thief := o.browser()
	thief.cookies[kept.Name] = kept
	thief.refused(thief.get(back), http.StatusBadRequest, "used before")
	o.refusedWithTitle(thief.get(back), http.StatusBadRequest, "Start again")
	if n := len(o.store.Sessions(ann.ID)); n != 1 {
		t.Errorf("%d sessions", n)
	}

	// The same person is the same user, with the role of the present claims.
	o.fake.Claims = map[string]any{"groups": []string{"ml-admins"}, "preferred_username": "renamed"}
	b.goes(b.visit(startPath), "/console/")
	if again := b.is("ann", store.RoleAdmin); again.ID != ann.ID {
		t.Error("another user")
	}
	if n := len(o.store.Sessions(ann.ID)); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if log := o.logged(); strings.Contains(log, "s3cret") || strings.Contains(log, kept.Value) {
		t.Error("the log has a secret")
	}
}

func (h *house) refusedWithTitle(w *httptest.ResponseRecorder, status int, title string) {
	h.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), "<h1>"+title+"</h1>") {
		h.Errorf("status %d, want %d with the title %q: %s", w.Code, status, title, mainPart(w.Body.String()))
	}
}

// Behind a proxy that ends TLS, cookies are Secure, by the redirect address.
func TestIssuerBehindProxy(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := o.browser()
	b.plain = true
	w := b.visit(startPath)
	b.goes(w, "/console/")
	if cookies := w.Result().Cookies(); !slices.ContainsFunc(cookies, func(c *http.Cookie) bool {
		return c.Name == "postern" && c.Secure
	}) {
		t.Errorf("%v", cookies)
	}
}

// Each tab has a flow. Of four, the first is dropped.
func TestIssuerTabs(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := o.browser()
	first, second := b.leave(startPath+"?next=/console/keys"), b.leave(startPath+"?next=/console/models")
	b.goes(b.get(second), "/console/models")
	b.goes(b.get(first), "/console/keys")
	b.is("ann", store.RoleMember)

	b = o.browser()
	var flows []string
	var cookies []*http.Cookie // browsers send the oldest first
	sorted := func(r *http.Request) {
		r.Header.Del("Cookie")
		for _, c := range cookies {
			r.AddCookie(c)
		}
	}
	for range 4 {
		before := len(b.cookies)
		flows = append(flows, b.leave(startPath, sorted))
		for _, c := range b.cookies {
			if !slices.ContainsFunc(cookies, func(o *http.Cookie) bool { return o.Name == c.Name }) {
				cookies = append(cookies, c)
			}
		}
		if len(b.cookies) > maxFlows {
			t.Fatalf("%d cookies after %d", len(b.cookies), before)
		}
	}
	o.refusedWithTitle(b.get(flows[0]), http.StatusBadRequest, "Start again")
	for _, back := range flows[1:] {
		b.goes(b.get(back), "/console/")
	}
}

// The redirect address and the next page do not follow what a client sends.
func TestIssuerStart(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := o.browser()
	for _, next := range []string{
		"//e", `/\e`, "%2f%2fe", "/console/../x", "/console/keys\r\nX: y", "https://e/console/", startPath,
		"/console/" + strings.Repeat("x", 10_000), "/console/?q=" + strings.Repeat("&", 500), "",
	} {
		before := b.leave(startPath + "?" + url.Values{"next": {next}}.Encode())
		for _, c := range b.cookies {
			if len(c.String()) > 1000 {
				t.Errorf("%.20q: a cookie of %d bytes", next, len(c.String()))
			}
		}
		b.goes(b.get(before), "/console/")
		b = o.browser()
	}
	for name, tweak := range map[string]func(*http.Request){
		"host":      func(r *http.Request) { r.Host = "evil.example.com" },
		"same site": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"another":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
	} {
		w := b.request(http.MethodGet, startPath+"?next=/console/keys", "", tweak)
		want := "/console/sign-in?next=%2Fconsole%2Fkeys"
		if name == "host" {
			want = base + want
		}
		b.goes(w, want)
	}
	for _, site := range []string{"none", "same-origin"} {
		back := b.leave(startPath, func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", site)
			r.Header.Set("X-Forwarded-Host", "evil.example.com")
		})
		b.goes(b.get(back), "/console/")
	}
	b.refused(b.get("/console/sign-in/oidc/other"), http.StatusNotFound, "no longer")
}

// A configuration may change between the start and the callback.
func TestIssuerReload(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	other := o.newIssuer(issuertest.New(t), "other")
	b := o.browser()
	back := b.leave(startPath)
	o.configure(false, other, o.issuer)
	b.goes(b.get(back), "/console/")

	b = o.browser()
	back = b.leave(startPath)
	changed := *o.issuer
	changed.ClientSecret = "changed"
	o.configure(false, &changed)
	b.goes(b.get(back), "/console/")
	if want := "Basic cG9zdGVybjpjaGFuZ2Vk"; !strings.HasPrefix(o.fake.Got, want) {
		t.Errorf("the issuer got %s", o.fake.Got)
	}

	b = o.browser()
	back = b.leave(startPath)
	o.configure(false, other)
	b.refused(b.get(back), http.StatusNotFound, "no longer lets people sign in")

	// The issuer is removed while the gateway asks it.
	o.configure(false, o.issuer)
	o.fake.Claims = map[string]any{"sub": "late"}
	b = o.browser()
	back = b.leave(startPath)
	sign := o.fake.Sign
	o.fake.Sign = func(claims string) string {
		o.store.SetSignInPolicy(store.SignInPolicy{Issuers: []string{other.URL}})
		return sign(claims)
	}
	if w := b.get(back); w.Code != http.StatusConflict || len(b.cookies) > 0 {
		t.Errorf("%d: %s", w.Code, mainPart(w.Body.String()))
	}
	if _, ok := o.store.FindIdentity(o.fake.URL, "late"); ok {
		t.Error("there is a user")
	}
}

// Failures have pages, and those of clients are counted.
func TestIssuerFailures(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := o.browser()
	b.goes(b.visit(startPath), "/console/")
	o.fake.Claims = map[string]any{"groups": []string{"<b>", "other"}}
	leaver := o.browser()
	w := leaver.visit(startPath)
	o.refusedWithTitle(w, http.StatusForbidden, "You have no role here")
	has(t, w.Body.String(), "&lt;b&gt;", "other", "admins or members")
	has(t, o.logged(), "other")
	b.goes(b.get("/console/keys"), "/console/sign-in?next=%2Fconsole%2Fkeys") // the sessions have ended
	for name, c := range map[string]struct {
		claims map[string]any
		status int
		title  string
	}{
		"claim":   {map[string]any{"groups": nil}, http.StatusForbidden, "The claims are incomplete"},
		"clock":   {map[string]any{"iat": time.Now().Unix() + 3600}, http.StatusServiceUnavailable, "The clocks differ"},
		"aud":     {map[string]any{"aud": "x"}, http.StatusServiceUnavailable, "The issuer’s answer is not valid"},
		"account": {map[string]any{"sub": "new"}, http.StatusNotFound, "Not found"},
	} {
		if o.fake.Claims = c.claims; name == "account" {
			o.issuer.Account = "gone"
		}
		w := leaver.visit(startPath)
		c.title = strings.ReplaceAll(c.title, "’", "&#39;")
		o.refusedWithTitle(w, c.status, c.title)
		o.issuer.Account = store.DefaultAccount
	}
	for n := range 12 { // however often it fails, the client is not to blame
		o.fake.Handle("/token", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500 + n%4) })
		o.refusedWithTitle(leaver.visit(startPath), http.StatusServiceUnavailable, "The issuer is unavailable")
	}
	for range 20 { // a page of another site does not use up the attempts
		leaver.refused(leaver.request(http.MethodGet, backPath+"?state=x&code=y", "", func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Dest", "image")
		}), http.StatusBadRequest, "whole page")
	}
	began := time.Now()
	for range 5 {
		o.refusedWithTitle(leaver.get(backPath+"?state=x&code=y"), http.StatusBadRequest, "Start again")
	}
	o.pass(500*time.Millisecond - time.Since(began))
	o.refusedWithTitle(leaver.get(backPath+"?state=x&code=y"), http.StatusBadRequest, "Start again")
	o.refusedWithTitle(leaver.get(backPath+"?state=x&code=y"), http.StatusTooManyRequests, "Too many attempts")
	o.refusedWithTitle(leaver.get(startPath), http.StatusTooManyRequests, "Too many attempts")
}

// Many answers from one address wait, also if they succeed.
func TestIssuerPace(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	codes := map[int]int{}
	var late *browser
	var back string
	for range 70 {
		b, began := o.browser(), time.Now()
		to := b.leave(startPath)
		code := b.get(to).Code
		if codes[code]++; code == http.StatusServiceUnavailable {
			late, back = b, to
		}
		o.pass(-time.Since(began)) // on a slow machine, one more may sign in each second
	}
	if codes[http.StatusServiceUnavailable] == 0 || codes[http.StatusSeeOther] < 60 {
		t.Fatalf("%v", codes)
	}
	o.pass(2 * time.Second)
	late.goes(late.get(back), "/console/") // after a reload of the page
}

// Signing out offers to sign out of the issuer, too.
func TestIssuerSignOut(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.fake.Discovery(map[string]any{"end_session_endpoint": o.fake.URL + "/end?x=1"})
	b := o.browser()
	b.goes(b.visit(startPath), "/console/")
	b.goes(b.post("/console/sign-out"), "/console/sign-in?left=company")
	has(t, b.page("/console/sign-in?left=company"), "You are signed out", o.fake.URL+"/end?client_id=postern&amp;x=1")
	lacks(t, b.page("/console/sign-in?left=other"), "Sign out there")
}

// The gateway's own part of a sign-in takes little time.
func TestIssuerSpeed(t *testing.T) {
	o := newOffice(t)
	var own []time.Duration
	for n := range 50 {
		o.fake.Claims = map[string]any{"sub": fmt.Sprint(n), "preferred_username": fmt.Sprint("ann ", n)}
		b := o.browser()
		back := b.leave(startPath)
		began := time.Now()
		b.goes(b.get(back), "/console/")
		own = append(own, time.Since(began))
	}
	slices.Sort(own)
	t.Logf("callback with the issuer on this machine: p50 %v, longest %v", own[25], own[49])
	if own[25] > time.Second {
		t.Errorf("p50 %v", own[25])
	}
}
