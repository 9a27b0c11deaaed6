package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/scripted"
	"github.com/postern-dev/postern/tests/harness"
)

func TestMain(m *testing.M) {
	code := harness.Run(m)
	Stop()
	os.Exit(code)
}

// password is the password of every user in these tests.
const password = "correct-horse-battery-staple"

// A rig is a gateway with a console, a model server without a connector, and a browser.
type rig struct {
	*harness.Gateway
	t       *testing.T
	browser *Browser
	model   string // URL of the model server
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{browser: Start(t), Gateway: harness.Start(t, harness.Options{Console: true}), t: t}
	r.Hide(password)
	server := httptest.NewServer(scripted.New(time.Millisecond))
	t.Cleanup(server.Close)
	r.model = server.URL
	return r
}

// firstUser opens the setup link as a new person, and signs up as the first user.
func (r *rig) firstUser(name string) *Person {
	r.t.Helper()
	var link struct{ URL string }
	r.Command(r.t, &link, "setup-link")
	return r.redeem(link.URL, name)
}

// TestOneGateway has the tests that share a gateway, each with its own account.
func TestOneGateway(t *testing.T) {
	t.Parallel()
	shared := newRig(t)
	for name, test := range map[string]func(t *testing.T, r *rig){
		"replaced device": testReplacedDevice, "rotating a token": testRotatingAToken, "revoking a key": testRevokingAKey,
		"life of a key": testLifeOfAKey,
		"by keyboard":   testByKeyboard, "without scripts": testWithoutScripts, "passkeys": testPasskeys,
		"hostile names":     testHostileNames,
		"users come and go": testUsersComeAndGo, "signing out of a new page": testSignOutOfANewPage, "roles": testRoles,
		"another account sees nothing": testAnotherAccountSeesNothing,
		"times and forms":              testTimesAndForms,
		"only a key":                   testOnlyAKey, "faults of the page for a key": testFaultsOfConnect,
		"a small window": testSmallWindow, "people behind a key": testPeopleBehindAKey, "groups": testGroups,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := *shared
			r.t = t
			test(t, &r)
		})
	}
}

// newUser creates an account with a user, and signs in.
func (r *rig) newUser(account, name string) *Person {
	r.t.Helper()
	r.Manage(r.t, http.MethodPost, "/accounts", map[string]string{"id": account}, nil)
	var invited struct{ URL string }
	r.Manage(r.t, http.MethodPost, "/invitations", map[string]string{"account": account}, &invited)
	return r.redeem(invited.URL, name)
}

// redeem opens a one-time link as a new person and signs up as an admin.
func (r *rig) redeem(link, name string) *Person {
	r.t.Helper()
	p := r.join(link, name)
	p.Arrives("/console/start")
	return p
}

// join opens a one-time link as a new person and signs up, in any role.
func (r *rig) join(link, name string) *Person {
	r.t.Helper()
	_, secret, ok := strings.Cut(link, "#")
	if !ok || !strings.HasPrefix(link, r.URL+"/console/") {
		r.t.Fatal("the link is not one of the console with its secret in the fragment")
	}
	r.Hide(secret)
	p := r.browser.Person(r.t, r.URL)
	p.Open(strings.TrimPrefix(link, r.URL))
	p.signUp(name)
	return p
}

// signUp fills in the form of a one-time link.
func (p *Person) signUp(name string) {
	p.t.Helper()
	p.Fill(`input[name="name"]`, name)
	p.Fill(`input[name="password"]`, password)
	p.Click(`main form button:not([type="button"])`)
}

// signIn signs in with the name and the password.
func (p *Person) signIn(name, password string) {
	p.t.Helper()
	p.Open("/console/sign-in")
	p.Fill(`input[name="name"]`, name)
	p.Fill(`input[name="password"]`, password)
	p.Click(`main form button:not([type="button"])`)
}

// startPairing starts a pairing on the Setup tab and returns the code.
func (r *rig) startPairing(p *Person) string {
	r.t.Helper()
	p.Open("/console/start")
	p.Click(`form[action="/console/start/pairing"] button`)
	code := strings.TrimSpace(p.Text(".claim"))
	if len(code) != len("PAIR-XXXX-XXXX") {
		r.t.Fatalf("the pairing code is %q", code)
	}
	return code
}

// fingerprint matches a fingerprint like "3f9a 07c2 b1d4 5e60".
var fingerprint = regexp.MustCompile(`[0-9a-f]{4}( [0-9a-f]{4}){3}`)

// fingerprint waits for the fingerprint that a pairing device prints.
func (r *rig) fingerprint(device *harness.Process) string {
	r.t.Helper()
	found := ""
	harness.Poll(r.t, patience, "the device's fingerprint", func(context.Context) error {
		if found = fingerprint.FindString(device.Log()); found == "" {
			return fmt.Errorf("the terminal shows %s", device.Log())
		}
		return nil
	})
	return found
}

// paired pairs a connector of the model server with the console, and publishes its model.
func (r *rig) paired(p *Person, name string) {
	r.t.Helper()
	device := r.Pair(r.t, name, r.startPairing(p), r.model)
	p.Sees(r.fingerprint(device))
	p.Press("Approve")
	p.publish()
}

// publish publishes the model that the Setup tab offers.
func (p *Person) publish() {
	p.t.Helper()
	p.Sees("scripted on ")
	p.Click(`form[action="/console/start/register"] button[value]`)
	p.Sees("Published: scripted.") // the steps that are done depend on the account's keys
}

// key creates a key with the console and returns it.
func (r *rig) key(p *Person, name, scope string) string {
	r.t.Helper()
	p.Open("/console/keys/new")
	p.Fill("#name", name)
	p.Fill("#scope", scope)
	p.Press("Create the key")
	key := strings.TrimSpace(p.Text("#new-key"))
	if !strings.HasPrefix(key, "sk-svc-") {
		r.t.Fatalf("the page shows %d characters instead of a key", len(key))
	}
	r.Hide(key)
	return key
}

// chat sends a request and returns the status.
func (r *rig) chat(key, model string) int {
	r.t.Helper()
	return r.Client(r.t, key).Post(r.t, harness.Chat(model, "")).Status
}

// expectChat sends a request and checks the status.
func (r *rig) expectChat(key, model string, want int) {
	r.t.Helper()
	if got := r.chat(key, model); got != want {
		r.t.Errorf("a request for %s got status %d %s, not %d", model, got, http.StatusText(got), want)
	}
}
