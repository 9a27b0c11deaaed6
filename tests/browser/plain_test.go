package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// Everything necessary works without JavaScript.
func testWithoutScripts(t *testing.T, r *rig) {
	r.newUser("plain", "paul")
	p := r.browser.Person(t, r.URL)
	p.Scripts(false)
	p.Width(390)
	p.signIn("paul", password)
	p.Arrives("/console/start")
	code := r.startPairing(p)
	device := r.Pair(t, "plain", code, r.model)
	fingerprint := r.fingerprint(device)
	p.Open("/console/start")
	p.Sees(fingerprint)
	p.Press("Approve")
	p.Sees("approved")
	p.Open("/console/connectors")
	p.until("a connector is online", func() bool {
		p.Open(p.Path()) // pages without scripts do not update
		return p.shows("1 of 1 online")
	})
	p.Open("/console/models/new")
	p.Choose("#connector", firstOption(p, "#connector"))
	p.Press("Load models")
	p.Choose("#pick", firstOption(p, "#pick"))
	p.Fill("#public-name", "plain/model:1b")
	p.Press("Publish")
	p.Sees("plain/model:1b")
	key := r.key(p, "plain", "plain/*")
	r.expectChat(key, "plain/model:1b", http.StatusOK)
	p.Open("/console/models/show?name=plain/model:1b")
	p.Click(`a[href^="/console/keys/setup"]`)
	p.Fill("#scope", "plain/*")
	p.Press("Preview")
	p.Sees("One model matches")
	p.Press("Get the command")
	p.Sees("USE-")
	p.Open("/console/models/show?name=plain/model:1b")
	p.Fill("#prompt", "Say hello.")
	p.Press("Send")
	p.Sees("first token after")
	for _, page := range []string{"home", "usage", "activity?key=console"} {
		p.Open("/console/" + page)
		p.Sees("plain/model:1b")
	}
	p.Open("/console/activity?status=ok")
	p.Sees("plain/model:1b")
	p.Click(`a[href^="/console/activity/req_"]`)
	p.Sees("Times and tokens")
	p.Open("/console/audit")
	p.Sees("published plain/model:1b on ")
	p.Choose("#operation", "key")
	p.Press("Show")
	p.Sees("1 operation.")
	p.Scripts(true)
	p.Open("/console/audit")
	p.Look("audit")
	p.Open("/console/keys/setup?default_model=plain/model:1b")
	p.Look("client-setup")
	p.Press("Get the command")
	p.Sees("The code works once.")
	p.Look("client-code")
	p.Scripts(false)
	p.Open("/console/confirm?next=/console/settings")
	p.Fill("#confirm-password", password)
	p.Press("Confirm")
	p.Arrives("/console/settings")
	p.Sees("Confirmed")
}

// A user can also sign in with a passkey.
func testPasskeys(_ *testing.T, r *rig) {
	p := r.newUser("passkeys", "pam")
	p.Authenticator()
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
	p.Sees("pam")

	p.Open("/console/confirm?next=/console/settings")
	p.Look("confirm")
	p.Press("Confirm with a passkey")
	p.Arrives("/console/settings")
	p.Sees("Confirmed")
}

// firstOption returns the value of the first option of a select.
func firstOption(p *Person, selector string) string {
	p.t.Helper()
	p.Do(chromedp.WaitVisible(chromedp.CSS(selector)))
	return Eval[string](p, fmt.Sprintf(`[...document.querySelector(%q).options].map(o => o.value).find(v => v) ?? ""`,
		selector))
}

// Times are in the zone of the browser, which the footer names, with UTC in their titles. A wrong field has the focus.
func testTimesAndForms(t *testing.T, r *rig) {
	p := r.newUser("zone", "zoe")
	p.Do(command(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Pacific/Kiritimati"}))
	p.Open("/console/settings")
	p.Sees("Times are in Pacific/Kiritimati.")
	p.Open("/console/audit")
	p.Sees(time.Now().In(time.FixedZone("", 14*3600)).Format("Monday, 2 January 2006"))
	if title := Eval[string](p, `document.querySelector("main time").title`); !strings.HasSuffix(title, " UTC") {
		t.Errorf("the title of a time is %q", title)
	}
	p.Open("/console/keys/new")
	p.Fill("#name", "laptop")
	p.Fill("#networks", "home")
	p.Expect("400 (Bad Request)")
	p.Press("Create the key")
	p.Sees("Allowed IP addresses: ")
	p.until("the wrong field has the focus", func() bool {
		return Eval[string](p, `document.activeElement.id + " " + document.querySelector("#name").value`) == "networks laptop"
	})
	p.Look("key-new-fault")
	p.Open("/console/settings")
	p.Click(`section[aria-labelledby="limits-title"] summary`)
	p.Look("settings-limits")
}
