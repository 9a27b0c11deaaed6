package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// A second account sees nothing of the first one, on any page.
func testAnotherAccountSeesNothing(t *testing.T, r *rig) {
	ada := r.newUser("first", "ada")
	r.paired(ada, "secret-box")
	key := r.key(ada, "secret-key", "*")
	r.expectChat(key, "scripted", http.StatusOK)

	eve := r.newUser("second", "eve")
	eve.Sees("0 of 4 done")
	for _, tab := range []string{
		"start", "models", "keys", "groups", "connectors", "home", "usage", "activity", "settings",
	} {
		eve.Open("/console/" + tab)
		html := Eval[string](eve, "document.documentElement.outerHTML")
		for _, secret := range []string{"secret-box", "secret-key", "scripted", "ada"} {
			if strings.Contains(html, secret) {
				t.Errorf("the tab %s of another account has %q", tab, secret)
			}
		}
	}
	for _, path := range []string{"/models/show?name=scripted", "/models/new?name=scripted"} {
		eve.Expect("404")
		eve.Open("/console" + path)
		if html := Eval[string](eve, "document.documentElement.outerHTML"); strings.Contains(html, "secret-box") {
			t.Errorf("%s shows another account's connector", path)
		}
	}
	if got := r.chat(r.key(eve, "eves", "*"), "scripted"); got != http.StatusNotFound {
		t.Errorf("another account's key reached the model: %d", got)
	}
	eve.Open("/console/usage")
	eve.Sees("Requests 1")
	r.expectChat(key, "scripted", http.StatusOK)
	eve.Open("/console/usage")
	eve.Sees("Requests 1")
}

// Users recover a forgotten password, sign out, sign in again, and are invited.
func testUsersComeAndGo(t *testing.T, r *rig) {
	grace := r.newUser("users", "grace")
	grace.Open("/console/settings")
	grace.Look("settings")

	stranger := r.browser.Person(t, r.URL)
	stranger.Open("/console/keys")
	stranger.Arrives("/console/sign-in?next=%2Fconsole%2Fkeys")
	stranger.Look("sign-in")
	stranger.Expect("status of 403") // the browser logs the refusal
	stranger.Fill(`input[name="name"]`, "grace")
	stranger.Fill(`input[name="password"]`, "not the password")
	stranger.Click(`main form button:not([type="button"])`)
	stranger.Sees("Wrong name or password")
	stranger.Look("sign-in-refused")
	stranger.Fill(`input[name="name"]`, "Grace") // names have no case
	stranger.Fill(`input[name="password"]`, password)
	stranger.Click(`main form button:not([type="button"])`)
	stranger.Arrives("/console/keys")

	// The other session ends here. Its page notices that at the end of its stream, or when it requests another
	// one.
	grace.Open("/console/start")
	grace.Expect("status of 401")
	stranger.Open("/console/settings")
	stranger.Press("Sign out other sessions")
	stranger.Sees("Your other sessions are signed out")
	grace.Arrives("/console/sign-in?next=%2Fconsole%2Fstart")
	grace.Open("/console/keys")
	grace.Arrives("/console/sign-in?next=%2Fconsole%2Fkeys")

	stranger.Press("Sign out")
	stranger.Sees("You are signed out")
	stranger.Open("/console/models")
	stranger.Arrives("/console/sign-in?next=%2Fconsole%2Fmodels")

	recovers(r, stranger)
}

// recovers sets grace's password with a link, which works once.
func recovers(r *rig, stranger *Person) {
	t := r.t
	t.Helper()
	var link struct{ URL string }
	r.Command(t, &link, "user", "recovery-link", "grace", "--account", "users")
	path := strings.TrimPrefix(link.URL, r.URL)
	r.Hide(path[strings.IndexByte(path, '#')+1:])
	stranger.Open(path)
	stranger.Look("recover")
	stranger.Sees("Remove your passkeys")
	if got := Eval[int](stranger, `document.querySelectorAll("input[type=checkbox]:checked").length`); got != 2 {
		t.Errorf("%d of two boxes are ticked", got)
	}
	stranger.Fill(`input[name="password"]`, password+"-2")
	r.Hide(password + "-2")
	stranger.Click(`main form button:not([type="button"])`)
	stranger.Arrives("/console/start")
	again := r.browser.Person(t, r.URL)
	again.Expect("status of 4")
	again.Open(path)
	again.Fill(`input[name="password"]`, password+"-3")
	again.Click(`main form button:not([type="button"])`)
	again.Sees("already used")
	again.signIn("grace", password)
	again.Sees("Wrong name or password")
	again.signIn("grace", password+"-2")
	again.Arrives("/console/start")
}

// Connectors and model servers choose names, which may be hostile.
func testHostileNames(t *testing.T, r *rig) {
	p := r.newUser("hostile", `hal"><img src=x onerror=alert(1)>`)
	const evil = `"><script>document.title='pwned'</script><img src=x onerror="document.title='pwned'">{{.}}` + "`${1}`"
	hostile := upstream.Start(t)
	hostile.Handle("GET /v1/models",
		upstream.JSON(`{"object":"list","data":[{"id":`+harness.Quote(evil)+`,"object":"model"}]}`))
	device := r.Pair(t, "evil", r.startPairing(p), hostile.URL, "--name", evil)
	p.Sees(r.fingerprint(device))
	check := func(where string) {
		t.Helper()
		if got := Eval[bool](p, `document.title === "pwned" || !!document.querySelector("main img, main script, main `+
			`[onerror]")`); got {
			t.Errorf("%s: a name became part of the page", where)
		}
	}
	check("device")
	p.Look("hostile-device")
	p.Press("Approve")
	p.SeesNot("waiting for approval")
	check("start")
	for i, path := range []string{"connectors", "models/new", "settings", "keys/new"} {
		p.Open("/console/" + path)
		check(path)
		p.Look(fmt.Sprintf("hostile-%d", i))
	}
}
