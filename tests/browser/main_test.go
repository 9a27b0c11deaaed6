package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/scripted"
	"github.com/postern-dev/postern/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// password is what every user of these tests signs in with.
const password = "correct-horse-battery-staple"

// A rig is a gateway with a console, a model server that the gateway does not
// know yet, and a browser.
type rig struct {
	*harness.Gateway
	t       *testing.T
	browser *Browser
	model   string // URL of the model server
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{Gateway: harness.Start(t, harness.Options{Console: true}), t: t, browser: Start(t)}
	r.Hide(password)
	server := httptest.NewServer(scripted.New(time.Millisecond))
	t.Cleanup(server.Close)
	r.model = server.URL
	return r
}

// firstUser opens the one-time link as a new person, who becomes the first
// user and is signed in after it.
func (r *rig) firstUser(name string) *Person {
	r.t.Helper()
	var link struct{ URL string }
	r.Command(r.t, &link, "setup-link")
	return r.redeem(link.URL, name)
}

// redeem opens a one-time link as a new person and signs up by it.
func (r *rig) redeem(link, name string) *Person {
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

// signUp fills in the form that a one-time link leads to.
func (p *Person) signUp(name string) {
	p.t.Helper()
	p.Fill(`input[name="name"]`, name)
	p.Fill(`input[name="password"]`, password)
	p.Click(`main form button:not([type="button"])`)
	p.Arrives("/console/start")
}

// signIn signs in with the name and the password.
func (p *Person) signIn(name, password string) {
	p.t.Helper()
	p.Open("/console/sign-in")
	p.Fill(`input[name="name"]`, name)
	p.Fill(`input[name="password"]`, password)
	p.Click(`main form button:not([type="button"])`)
}

// startPairing presses the button on the Setup tab and returns the pairing code.
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

// fingerprint waits for the fingerprint that a pairing device prints.
func (r *rig) fingerprint(device *harness.Process) string {
	r.t.Helper()
	found := ""
	harness.Poll(r.t, patience, "the device's fingerprint", func(context.Context) error {
		log := device.Log()
		for i := range log {
			if i+19 <= len(log) && isFingerprint(log[i:i+19]) {
				found = log[i : i+19]
				return nil
			}
		}
		return fmt.Errorf("the terminal shows %s", log)
	})
	return found
}

// isFingerprint tells whether s looks like "3f9a 07c2 b1d4 5e60".
func isFingerprint(s string) bool {
	for i, c := range s {
		blank := i%5 == 4
		hex := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		if blank && c != ' ' || !blank && !hex {
			return false
		}
	}
	return true
}

// paired pairs a connector to the model server by the console.
func (r *rig) paired(p *Person, name string) {
	r.t.Helper()
	device := r.Pair(r.t, name, r.startPairing(p), r.model)
	p.Sees(r.fingerprint(device))
	p.Press("Approve")
	p.Sees("scripted on ")
}

// key creates a key by the console and returns it.
func (r *rig) key(p *Person, name, scope string) string {
	r.t.Helper()
	p.Open("/console/keys/new")
	p.Fill("#name", name)
	p.Fill("#scope", scope)
	p.Press("Create the key")
	key := strings.TrimSpace(p.Text("#new-key"))
	if !strings.HasPrefix(key, "sk-svc-") {
		r.t.Fatalf("the page shows no key but %d characters", len(key))
	}
	r.Hide(key)
	return key
}

// chat sends a request and returns its status.
func (r *rig) chat(key, model string) int {
	r.t.Helper()
	return r.Client(r.t, key).Post(r.t, harness.Chat(model, "")).Status
}

// expectChat sends a request and compares its status.
func (r *rig) expectChat(key, model string, want int) {
	r.t.Helper()
	if got := r.chat(key, model); got != want {
		r.t.Errorf("a request for %s got status %d %s, not %d", model, got, http.StatusText(got), want)
	}
}
