package browser

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"github.com/postern-dev/postern/tests/harness"
)

// All that must be done can be done without JavaScript.
func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.firstUser("ada")
	p := r.browser.Person(t, r.URL)
	p.Scripts(false)
	p.Width(390)
	p.signIn("ada", password)
	p.Arrives("/console/start")
	code := r.startPairing(p)
	device := r.Pair(t, "plain", code, r.model)
	fingerprint := r.fingerprint(device)
	p.Open("/console/start")
	p.Sees(fingerprint)
	p.Press("Approve")
	p.Sees("approved")
	waitOnline(t, r)
	p.Open("/console/models/new")
	p.Choose("#connector", firstOption(p, "#connector"))
	p.Press("Load models")
	p.Choose("#pick", firstOption(p, "#pick"))
	p.Fill("#public-name", "plain/model:1b")
	p.Press("Publish")
	p.Sees("plain/model:1b")
	key := r.key(p, "plain", "plain/*")
	r.expectChat(key, "plain/model:1b", http.StatusOK)
	p.Open("/console/activity")
	p.Sees("plain/model:1b")
	p.Open("/console/confirm?next=/console/settings")
	p.Fill("#confirm-password", password)
	p.Press("Confirm")
	p.Arrives("/console/settings")
	p.Sees("Confirmed")
}

// A passkey is a second way in.
func TestPasskeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.firstUser("ada")
	p.Do(
		command(webauthn.Enable, webauthn.EnableParams{}),
		command(webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
			HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
		}}),
	)
	p.Open("/console/settings")
	p.Fill(`#passkey-name`, "laptop")
	p.Press("Add a passkey")
	p.Sees("laptop")
	p.Look("settings-passkey")
	p.Press("Sign out")
	p.Sees("signed out")
	p.Open("/console/sign-in")
	p.Press("Sign in with a passkey")
	p.Arrives("/console/start")
	p.Sees("ada")

	p.Open("/console/confirm?next=/console/settings")
	p.Look("confirm")
	p.Press("Confirm with a passkey")
	p.Arrives("/console/settings")
	p.Sees("Confirmed")
}

// firstOption is the first value that a select offers.
func firstOption(p *Person, selector string) string {
	p.t.Helper()
	p.Do(chromedp.WaitVisible(chromedp.CSS(selector)))
	return Eval[string](p, fmt.Sprintf(`[...document.querySelector(%q).options].map(o => o.value).find(v => v) ?? ""`, selector))
}

// waitOnline waits until a connector is online.
func waitOnline(t *testing.T, r *rig) {
	t.Helper()
	harness.Poll(t, patience, "a connector being online", func(context.Context) error {
		var list []struct{ State string }
		r.Manage(t, http.MethodGet, "/connectors", nil, &list)
		for _, c := range list {
			if c.State == "online" {
				return nil
			}
		}
		return fmt.Errorf("the connectors are %v", list)
	})
}
