package browser

import (
	"net/http"
	"strings"
	"testing"
)

// The first start and the first completion need only the browser and one command for the connector. All pages
// on the way are checked.
func TestFromFirstStartToFirstCompletion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.firstUser("ada")
	p.Sees("0 of 4 done")
	p.Look("start-empty")
	for _, tab := range []string{"models", "keys", "connectors", "home", "usage", "activity", "settings"} {
		p.Open("/console/" + tab)
		p.Look(tab + "-empty")
	}

	code := r.startPairing(p)
	p.Sees(code)
	p.Look("start-code")
	device := r.Pair(t, "gpu-box", code, r.model)
	fingerprint := r.fingerprint(device)
	p.Sees(fingerprint) // the page updates without a reload
	p.Sees("waiting for approval")
	p.Look("start-device")
	p.Press("Approve")
	p.Sees("1 of 4 done")
	p.Sees("scripted on ")
	p.Look("start-offers")
	p.publish()
	p.Sees("2 of 4 done")

	p.Open("/console/keys/new")
	p.Fill("#scope", "scr*")
	p.Sees("One model matches")
	p.Fill("#scope", "other*")
	p.Sees("No model matches")
	p.Look("key-new")
	key := r.key(p, "laptop", "*")
	p.Look("key-created")

	p.Open("/console/start")
	p.Sees("3 of 4 done")
	r.expectChat(key, "scripted", http.StatusOK)
	p.Sees("All set.")
	p.Look("start-done")

	p.Open("/console/")
	p.Arrives("/console/home")
	p.Sees("All models available")
	p.Look("home")
	p.Open("/console/activity")
	p.Sees("laptop")
	p.Look("activity")
	p.Click(`a[href^="/console/activity/req_"]`)
	p.Sees("Times and tokens")
	p.Look("request")
	r.expectChat(key, "nothing", http.StatusNotFound)
	p.Open("/console/activity")
	p.Sees("model_not_found")
	p.Choose(`select[name="status"]`, "client")
	p.until("only the client's fault is listed", func() bool {
		return Eval[int](p, `document.querySelectorAll("main tbody tr:not(.why)").length`) == 1
	})
	p.Arrives("/console/activity?status=client")
	p.Open("/console/activity")
	r.expectChat(key, "scripted", http.StatusOK)
	p.until("the next request is in the list", func() bool {
		return Eval[int](p, `document.querySelectorAll("main tbody tr:not(.why)").length`) == 3
	})
	for _, page := range []string{"usage", "usage?range=24h&by=day"} {
		p.Open("/console/" + page)
		p.Sees("Requests 3")
	}
	p.Look("usage")
	p.Width(320)
	p.fits("usage-320")
	p.Width(1280)

	p.Open("/console/models")
	p.Sees("1 of 1 available")
	p.Look("models")
	p.Press("scripted")
	p.Press("Run a test")
	p.Sees("It works.")
	p.Sees("Time to first token")
	p.Press("Measure")
	p.Sees("vm: The ")
	p.Look("model")
	p.Click("#playground summary")
	p.Fill("#system", "Be brief.")
	p.Fill("#prompt", "Say hello.")
	p.Fill("#max-tokens", "20")
	p.Press("Send")
	p.Sees("tokens/s")
	p.Sees(", by vm")
	p.Look("model-played")
	if !Eval[bool](p, `!!document.getElementById("live")`) { // the page has answered its forms itself
		t.Error("the page no longer has a stream")
	}
	p.Open("/console/activity?key=console")
	p.Sees("playground")
	p.Open("/console/models/show?name=scripted")
	p.Press("Change")
	p.Sees("Change scripted")
	p.Click("#names > summary")
	p.Fill("#also-as", "coder\nclaude-*")
	p.Click("#options > summary")
	p.Sees("remote_media")
	p.Fill("#option-context_window", "16384")
	p.Click("#options details > summary")
	p.Sees("enable_thinking")
	p.Look("model-change")
	p.Press("Save")
	p.Sees("coder, claude-*")
	p.Sees("set for this model")
	p.Click(`label[for="tab-claude"]`)
	p.Look("model-window")
	p.Open("/console/connectors")
	p.Sees("1 of 1 online")
	p.Look("connectors")
	p.Click(`a[href^="/console/connectors/show"]`)
	p.Sees("1 model on default")
	p.Look("connector")
	p.Click("details:has(#name) > summary")
	p.Fill("#name", "rack")
	p.Click(`form[action$="/rename"] button`)
	p.Sees("It is called rack now.")
	p.Sees("Models that use it")
}

// A revoked key fails as soon as the page shows it as revoked.
func testRevokingAKey(t *testing.T, r *rig) {
	p := r.newUser("revoking", "rita")
	r.paired(p, "revoking")
	p.Clipboard()
	key := r.key(p, "short-lived", "scripted")
	Eval[bool](p, `(() => {
		const write = navigator.clipboard.writeText.bind(navigator.clipboard);
		navigator.clipboard.writeText = (text) => { window.copied = text; return write(text); };
		return true;
	})()`)
	p.Press("Copy")
	p.Sees("Copied")
	if got := Eval[string](p, "window.copied"); got != key {
		t.Errorf("the copy button has copied %d characters, not the key", len(got))
	}
	r.expectChat(key, "scripted", http.StatusOK)

	p.Open("/console/keys")
	p.Look("keys")
	p.Press("short-lived")
	p.Press("Revoke")
	p.Sees("Revoke short-lived?")
	p.Look("key-revoke")
	p.Click("main .button-danger")
	p.Arrives("/console/keys")
	r.expectChat(key, "scripted", http.StatusUnauthorized)
	p.Sees("Revoked keys (1)")
	p.Open("/console/keys?show=revoked")
	p.Sees("short-lived")
	p.Look("keys-revoked")
	if html := Eval[string](p, "document.documentElement.outerHTML"); strings.Contains(html, key) {
		t.Error("the page still has the key")
	}
}

// A reload of a new key's page does not create another key, and a key's page changes it.
func testLifeOfAKey(t *testing.T, r *rig) {
	p := r.newUser("keys", "kim")
	r.paired(p, "keys")
	key := r.key(p, "laptop", "scripted")
	p.Open(p.Path()) // a reload
	p.Sees("A secret is shown once")
	p.Look("key")
	r.expectChat(key, "scripted", http.StatusOK)

	p.Expect("400 (Bad Request)")
	p.Press("Change name, scope, limits…")
	p.Fill("#networks", "192.0.2.0/33")
	p.Press("Save")
	p.Sees("is not an IP address or a network")
	p.Look("key-fault")
	p.Fill("#networks", "192.0.2.0/24")
	p.Fill("#note", "of the desk")
	p.Click("details details summary")
	p.Fill("#tokens_per_day", "20000")
	p.Fill("#requests_per_minute", "60")
	p.Press("Save")
	p.Sees("laptop is changed.")
	p.Sees("Tokens per day")
	p.Look("key-limits")
	p.Open("/console/keys")
	p.Sees("of 20")
	p.Look("keys-limits")
	p.Click(`main a[href^="/console/keys/key_"]`)
	p.Sees("of the desk")
	r.expectChat(key, "scripted", http.StatusForbidden)
	p.Open(p.Path())
	p.SeesNot("laptop is changed.")
	p.Sees("Last requests")
	p.Look("key-requests")
	p.Press("Change name, scope, limits…")
	p.Fill("#networks", "")
	p.Press("Save")
	p.Sees("laptop is changed.")
	r.expectChat(key, "scripted", http.StatusOK)

	p.Press("Disable")
	p.Sees("laptop is disabled")
	r.expectChat(key, "scripted", http.StatusUnauthorized)
	p.Press("Enable")
	p.Sees("laptop is enabled.")

	p.Press("Rotate the key")
	next := strings.TrimSpace(p.Text("#new-key"))
	r.Hide(next)
	p.Sees("The previous key")
	r.expectChat(next, "scripted", http.StatusOK)
	r.expectChat(key, "scripted", http.StatusOK)
	p.Press("Done")
	p.Sees("active")
	p.Press("laptop")
	p.Sees("Rotate the key")
	p.Look("key-rotated")
	p.Width(320)
	p.fits("key-320")
	p.Open("/console/keys")
	p.fits("keys-320")
	p.Width(1280)
}
