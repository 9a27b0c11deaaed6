package oidc

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/browser"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// rig is a gateway whose people sign in by a provider.
type rig struct {
	*harness.Gateway
	provider *provider
}

// options returns the options of the gateway. first comes before the issuer.
func (p *provider) options(first string) harness.Options {
	return harness.Options{Address: "localhost", Lines: fmt.Sprintf(`model_console {
		%s
		oidc %s {
			client_id %s
			client_secret {env.ISSUER_SECRET}
			admins ml-admins
			members ml-team
			name company
		}
	}`, first, p.URL, clientID), Env: []string{"ISSUER_SECRET=" + clientSecret}}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	p := newProvider(t)
	r := &rig{Gateway: harness.Start(t, p.options("")), provider: p}
	r.Hide(clientSecret, password)
	return r
}

// serve starts the provider, and waits until the gateway knows it.
func (r *rig) serve(t *testing.T) {
	t.Helper()
	r.provider.start(r.URL + callback)
	wait.Until(t, "the gateway knows the provider", func() bool {
		status, _, page := r.person(t).do(http.MethodGet, r.URL+"/console/sign-in", nil)
		return status == http.StatusOK && !strings.Contains(page, "cannot be reached")
	})
}

// person is a browser without scripts.
type person struct {
	*http.Client
	t *testing.T
	r *rig
}

func (r *rig) person(t *testing.T) *person {
	jar, err := cookiejar.New(nil)
	must(t, err)
	return &person{&http.Client{Jar: jar, Timeout: time.Minute}, t, r}
}

// do sends a request, and returns the last address and its page.
func (p *person) do(method, to string, form url.Values) (status int, path, page string) {
	p.t.Helper()
	request, err := http.NewRequest(method, to, strings.NewReader(form.Encode()))
	must(p.t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := p.Do(request)
	must(p.t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	must(p.t, err)
	return answer.StatusCode, answer.Request.URL.Path, string(text)
}

// begin opens the link, and returns the id of the request at the provider.
func (p *person) begin() string {
	p.t.Helper()
	status, path, page := p.do(http.MethodGet, p.r.URL+"/console/sign-in/oidc/company", nil)
	_, id, _ := strings.Cut(page, `name="id" value="`)
	id, _, ok := strings.Cut(id, `"`)
	if !ok {
		p.t.Fatalf("%d %s: %s", status, path, page)
	}
	return id
}

// finish signs in at the provider, and follows its redirects.
func (p *person) finish(id, name string) (status int, path, page string) {
	p.t.Helper()
	return p.do(http.MethodPost, p.r.provider.URL+"/login/username",
		url.Values{"id": {id}, "username": {name}, "password": {password}})
}

// signIn makes a whole sign-in, and checks where it ends.
func (p *person) signIn(name, path, text string) {
	p.t.Helper()
	if status, at, page := p.finish(p.begin(), name); at != path || !strings.Contains(page, text) {
		p.t.Fatalf("%s: %d %s, want %s with %q: %s", name, status, at, path, text, page)
	}
}

const callback = "/console/sign-in/oidc/company/callback"

// The provider is down at load, comes, restarts with new keys, and fails between start and callback.
func TestProviderComesAndGoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.person(t)
	status, _, page := p.do(http.MethodGet, r.URL+"/console/sign-in", nil)
	if status != http.StatusOK || !strings.Contains(page, "cannot be reached at the moment") {
		t.Errorf("while it is down: %d %s", status, page)
	}
	if status, _, page = p.do(http.MethodGet, r.URL+"/console/sign-in/oidc/company", nil); status != 503 ||
		!strings.Contains(page, "The issuer is unavailable") {
		t.Errorf("while it is down: %d %s", status, page)
	}
	r.serve(t)
	p.signIn("ann", "/console/start", "ann")
	r.serve(t) // with new keys
	r.person(t).signIn("ann", "/console/start", "ann")

	id := p.begin()
	handler := r.provider.handler.Load()
	p.CheckRedirect = func(to *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(to.URL.Path, callback) {
			r.provider.handler.Store(nil)
		}
		return nil
	}
	began := time.Now()
	status, at, page := p.finish(id, "ann")
	if status != 503 || at != callback || !strings.Contains(page, "The issuer is unavailable") {
		t.Errorf("down at the callback: %d %s %s", status, at, page)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	r.provider.handler.Store(handler)
}

// Roles follow the claims at each sign-in, and who has none is refused.
func TestRoles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(t)
	ann, bob := r.person(t), r.person(t)
	ann.signIn("ann", "/console/start", "ann")
	bob.signIn("bob", "/console/models", "bob")
	r.person(t).signIn("eve", callback, "You have no role here")
	role := func(name string) string {
		var users []struct{ Name, Role string }
		r.Manage(t, http.MethodGet, "/users", nil, &users)
		for _, u := range users {
			if u.Name == name {
				return u.Role
			}
		}
		return "none"
	}
	r.provider.set("bob", "ml-admins")
	r.person(t).signIn("bob", "/console/start", "bob")
	r.provider.set("ann", "ml-team")
	r.person(t).signIn("ann", "/console/models", "ann")
	if a, b, e := role("ann"), role("bob"), role("eve"); a != "member" || b != "admin" || e != "none" {
		t.Errorf("ann: %s, bob: %s, eve: %s", a, b, e)
	}
	r.provider.set("ann", "other")
	r.person(t).signIn("ann", callback, "You have no role here")
	if _, at, _ := ann.do(http.MethodGet, r.URL+"/console/keys", nil); at != "/console/sign-in" {
		t.Errorf("the sessions of who has left go on: %s", at)
	}
}

// kill ends the gateway as a crash would.
func (r *rig) kill(t *testing.T) {
	t.Helper()
	r.Process.Signal(t, syscall.SIGKILL)
	r.Process.WaitExit(t, harness.Patience)
}

// A gateway that was killed between start and callback takes the answer after its next start. If it was killed while it
// exchanged the code, the flow is used: the page says so, and the next sign-in works.
func TestKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(t)
	p := r.person(t)
	id := p.begin()
	r.kill(t)
	r.Restart(t)
	if status, at, page := p.finish(id, "ann"); at != "/console/start" {
		t.Fatalf("killed before the callback: %d %s: %s", status, at, page)
	}

	late := r.person(t)
	id = late.begin()
	handler := *r.provider.handler.Load()
	var killing http.Handler = http.HandlerFunc(func(w http.ResponseWriter, asked *http.Request) {
		if asked.URL.Path == "/oauth/token" {
			r.kill(t)
		}
		handler.ServeHTTP(w, asked)
	})
	r.provider.handler.Store(&killing)
	back := ""
	late.CheckRedirect = func(to *http.Request, _ []*http.Request) error {
		if to.URL.Path == callback {
			back = to.URL.String()
		}
		return nil
	}
	if _, err := late.PostForm(r.provider.URL+"/login/username",
		url.Values{"id": {id}, "username": {"bob"}, "password": {password}}); err == nil || back == "" {
		t.Fatalf("killed in the callback: no error, or no callback: %s", back)
	}
	r.provider.handler.Store(&handler)
	r.Restart(t)
	status, at, page := late.do(http.MethodGet, back, nil)
	if status != http.StatusBadRequest || at != callback || !strings.Contains(page, "<h1>Start again</h1>") ||
		!strings.Contains(page, `href="/console/sign-in"`) {
		t.Errorf("the callback again: %d %s: %s", status, at, page)
	}
	late.signIn("bob", "/console/models", "bob")
	var users []struct{ Name string }
	r.Manage(t, http.MethodGet, "/users", nil, &users)
	if len(users) != 2 {
		t.Errorf("the users are %v", users)
	}
}

// A reload between start and callback, with another issuer in front, does no harm. The removed issuer no longer signs
// users in.
func TestReload(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(t)
	p := r.person(t)
	id := p.begin()
	r.Configure(t, r.provider.options("oidc https://localhost:1 {\n client_id x\n name other\n}\n session_lifetime 1h"))
	r.Reload(t)
	if status, at, page := p.finish(id, "ann"); at != "/console/start" {
		t.Fatalf("%d %s: %s", status, at, page)
	}
	late := r.person(t)
	id = late.begin()
	r.Configure(t, harness.Options{Address: "localhost", Lines: "model_console"})
	r.Reload(t)
	if status, at, page := late.finish(id, "ann"); at != callback || !strings.Contains(page, "no longer lets people") {
		t.Errorf("%d %s: %s", status, at, page)
	}
	if _, at, _ := p.do(http.MethodGet, r.URL+"/console/keys", nil); at != "/console/sign-in" {
		t.Errorf("the session of a removed issuer goes on: %s", at)
	}
}

// The own time of a sign-in is what the gateway takes from the callback to its answer, with the provider's requests.
func TestOwnTime(t *testing.T) {
	r := newRig(t)
	r.serve(t)
	var own []time.Duration
	for n := range 21 {
		p := r.person(t)
		id := p.begin()
		var began, ended time.Time
		p.CheckRedirect = func(to *http.Request, via []*http.Request) error {
			switch last := via[len(via)-1].URL.Path; {
			case to.URL.Path == callback:
				began = time.Now()
			case last == callback:
				ended = time.Now()
			}
			return nil
		}
		r.provider.set(fmt.Sprint("ann ", n), "ml-admins")
		if status, at, page := p.finish(id, fmt.Sprint("ann ", n)); at != "/console/start" {
			t.Fatalf("%d %s: %s", status, at, page)
		}
		own = append(own, ended.Sub(began))
	}
	slices.Sort(own)
	t.Logf("callback to answer: p50 %v, longest %v", own[10], own[20])
	if own[10] > 500*time.Millisecond { // the aim is 50 ms on an idle machine
		t.Errorf("p50 %v", own[10])
	}
}

// TestIssuer signs in, confirms, links and signs out in Chromium, which reports violations of the policy.
func TestIssuer(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	r := newRig(t)
	r.serve(t)
	useIssuer(t, chromium, r.URL)
}

// useIssuer signs in at a console, confirms, links and signs out.
func useIssuer(t *testing.T, chromium *browser.Browser, console string) {
	t.Helper()
	atIssuer := func(p *browser.Person, name string) {
		t.Helper()
		p.Sees("Log in to the issuer")
		p.Fill(`input[name="username"]`, name)
		p.Fill(`input[name="password"]`, password)
		p.Click("button")
	}
	p := chromium.Person(t, console)
	p.Open("/console/sign-in?next=/console/keys")
	p.Press("Sign in with company")
	atIssuer(p, "ann")
	p.Arrives("/console/keys")
	p.Sees("ann")

	p.Open("/console/confirm?next=/console/settings")
	p.Press("Confirm with company")
	atIssuer(p, "ann")
	p.Arrives("/console/settings")
	p.Press("New token")
	p.Fill(`#token-name`, "script") // fails unless the session is confirmed
	p.Click(`form[action="/console/settings/tokens"] button`)
	p.Sees("You won’t see it again")

	p.Open("/console/settings")
	p.Press("Link company")
	atIssuer(p, "bob")
	p.Sees("company has signed in bob")
	p.Press("Link to ann")
	p.Arrives("/console/settings")
	p.Sees("The identity is linked")

	p.Press("Sign out")
	p.Sees("You are still signed in at company")
	p.Press("Sign out there, too")
	p.Sees("You have left")

	other := chromium.Person(t, console)
	other.Open("/console/sign-in/oidc/company")
	atIssuer(other, "bob")
	other.Arrives("/console/start")
	other.Sees("ann")
}
