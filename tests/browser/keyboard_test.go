package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// keys types text on the keyboard, wherever the focus is.
func (p *Person) keys(text string) {
	p.t.Helper()
	p.Do(chromedp.KeyEvent(text))
}

// focused waits until the first match has the focus. A new page may not have it yet.
func (p *Person) focused(selector string) {
	p.t.Helper()
	p.until(selector+" has the focus", func() bool {
		is, err := get(p, chromedp.Evaluate[bool](fmt.Sprintf(`document.activeElement?.matches(%q) === true`, selector)))
		return err == nil && is
	})
}

// tabTo presses the Tab key until the focus is on an element with this text or label. It fails if the focus is
// invisible on any element before it.
func (p *Person) tabTo(label string) {
	p.t.Helper()
	for range 60 {
		p.keys(kb.Tab)
		at := Eval[struct {
			Label string `json:"label"`
			Seen  bool   `json:"seen"`
		}](p, `(() => {
			const e = document.activeElement ?? document.documentElement;
			const style = getComputedStyle(e), box = e.getBoundingClientRect();
			const shown = e.matches("input[type=radio]") ? e.nextElementSibling : e; // its label is visible instead
			const ring = getComputedStyle(shown);
			return {label: e.getAttribute("aria-label") || e.textContent.trim().replace(/\s+/g, " ") || e.id,
				seen: e === document.body || e === document.documentElement || ring.outlineStyle !== "none" ||
					ring.boxShadow !== "none" || style.outlineStyle !== "none"};
		})()`)
		if !at.Seen {
			p.t.Errorf("the focus on %q cannot be seen", at.Label)
		}
		if at.Label == label {
			return
		}
	}
	p.t.Fatalf("the Tab key does not reach %q\n%s", label, p.where())
}

// The keyboard alone is enough from signing in to creating a key.
func testByKeyboard(t *testing.T, r *rig) {
	r.newUser("keyboard", "kay")
	p := r.browser.Person(t, r.URL)
	p.Open("/console/sign-in")
	p.focused("[name=name]")
	p.keys("kay")
	p.keys(kb.Tab)
	p.keys(password)
	p.keys(kb.Enter)
	p.Arrives("/console/start")

	p.Open("/console/keys")
	p.keys(kb.Tab)
	if first := Eval[string](p, `document.activeElement.textContent.trim()`); first != "Skip to content" {
		t.Errorf("the first Tab leads to %q, not past the navigation", first)
	}
	p.keys(kb.Enter)
	p.tabTo("Create a key")
	p.keys(kb.Enter)
	p.Arrives("/console/keys/new")
	p.focused("[name=name]")
	p.keys("typed")
	p.tabTo("Create the key")
	p.keys(kb.Enter)
	p.Sees("Key typed")
	p.tabTo("Done")
	p.keys(kb.Enter)
	p.Arrives("/console/keys")
	p.tabTo("typed")
	p.keys(kb.Enter)
	p.Sees("Allowed IP addresses")
	p.tabTo("Revoke")
	p.keys(kb.Enter)
	p.Sees("Revoke typed?")
	p.tabTo("Revoke typed")
	p.keys(kb.Enter)
	p.Sees("Revoked keys (1)")
}
