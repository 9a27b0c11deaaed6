// Package browser drives a real Chromium through the console with a mouse, a keyboard, the screen of a phone,
// and without JavaScript. It watches every page that a test opens: an error on the page's console, an
// exception or a violation of its content security policy fails the test.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/chromium"
)

// patience is the limit for one step of a test.
const patience = harness.Patience

// start starts the Chromium that all tests of the package share.
var start = sync.OnceValues(func() (*Browser, error) {
	dir, err := os.MkdirTemp("", "chromium-")
	if err != nil {
		return nil, fmt.Errorf("creating a folder for Chromium: %w", err)
	}
	ctx, end, err := chromium.Start(dir)
	stop = func() {
		if err == nil {
			end()
		}
		_ = os.RemoveAll(dir)
	}
	return &Browser{ctx: ctx}, err
})

// stop ends the browser of start.
var stop = func() {}

// Stop ends the browser, if it runs. Call it after all tests.
func Stop() { stop() }

// A Browser is a running Chromium. Each [Person] in it has its own profile.
type Browser struct {
	ctx context.Context
}

// Start returns the browser. Without Chromium, the test fails, or is skipped with POSTERN_SKIP_BROWSER=1.
func Start(t testing.TB) *Browser {
	t.Helper()
	b, err := start()
	if errors.Is(err, chromium.ErrMissing) && os.Getenv("POSTERN_SKIP_BROWSER") == "1" {
		t.Skip("POSTERN_SKIP_BROWSER=1: tests that need Chromium are skipped")
	}
	if err != nil {
		t.Fatalf("%v\n(POSTERN_SKIP_BROWSER=1 skips the tests that need Chromium)", err)
	}
	return b
}

// A Person has one open page and its own cookies.
type Person struct {
	t    testing.TB
	ctx  context.Context
	base string // base of relative URLs

	mu       sync.Mutex
	faults   []string
	expected []string // parts of messages that are not faults
}

// Person opens an empty page in a new profile. The paths for [Person.Open] are relative to base.
func (b *Browser) Person(t testing.TB, base string) *Person {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	p := &Person{t: t, ctx: ctx, base: base}
	t.Cleanup(func() {
		p.Check()
		cancel()
	})
	// No deadline, because the page would end with it.
	if err := chromedp.Listen(ctx, p.watch); err != nil {
		t.Fatalf("opening a page: %v", err)
	}
	p.Do(
		command(audits.Enable, cdp.Empty{}),
		// Only a focused page can use the clipboard.
		command(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}),
	)
	p.Width(1280)
	return p
}

// command returns a step that sends a protocol command.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// watch records events that no page may cause.
func (p *Person) watch(event any) {
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			p.fault("log", e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			text += " " + thrown.Description
		}
		p.fault("exception", text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			var text []string
			for _, arg := range e.Args {
				text = append(text, string(arg.Value)+arg.Description)
			}
			p.fault("console", strings.Join(text, " "))
		}
	case *audits.EventIssueAdded:
		if d := e.Issue.Details.ContentSecurityPolicyIssueDetails; d != nil {
			p.fault("content security policy",
				fmt.Sprintf("%s %s %s", d.ContentSecurityPolicyViolationType, d.ViolatedDirective, d.BlockedURL))
		}
	}
}

func (p *Person) fault(kind, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range p.expected {
		if strings.Contains(text, part) {
			return
		}
	}
	p.faults = append(p.faults, kind+": "+text)
}

// Expect excludes messages with this text from the faults. For example, the browser logs the error status of a
// refused form.
func (p *Person) Expect(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = append(p.expected, part)
}

// Check fails the test if there were faults, and forgets them.
func (p *Person) Check() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fault := range p.faults {
		p.t.Errorf("fault of the page: %s", fault)
	}
	p.faults = nil
}

// Do runs steps, and fails the test if one fails or takes too long.
func (p *Person) Do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("in the browser: %v\n%s", err, p.where())
	}
}

// get runs an action that returns a value.
func get[T any](p *Person, a chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, a)
}

// must is get for an action that must succeed.
func must[T any](p *Person, a chromedp.Action[T]) T {
	p.t.Helper()
	v, err := get(p, a)
	if err != nil {
		p.t.Fatalf("in the browser: %v\n%s", err, p.where())
	}
	return v
}

// Eval returns the value of a JavaScript expression in the page.
func Eval[T any](p *Person, expression string) T {
	p.t.Helper()
	return must(p, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// body is the expression for the visible text of the page.
const body = `document.body ? document.body.innerText : ""`

// where describes the page for an error message.
func (p *Person) where() string {
	url, _ := get(p, chromedp.Location())
	text, err := get(p, chromedp.Evaluate[string](body))
	return fmt.Sprintf("the page is %s (%v):\n%s", url, err, text)
}

// Open opens a path and waits until the page has loaded. It repeats that if the old page navigates at the same
// moment, as a page does whose session has ended.
func (p *Person) Open(path string) {
	p.t.Helper()
	p.until(fmt.Sprintf("%s is opened", path), func() bool {
		_, err := get(p, chromedp.Navigate(p.base+path))
		if err != nil && !strings.Contains(err.Error(), "net::ERR_ABORTED") {
			p.t.Fatalf("in the browser: %v\n%s", err, p.where())
		}
		return err == nil
	})
}

// Path returns the path and query of the open page.
func (p *Person) Path() string {
	p.t.Helper()
	return strings.TrimPrefix(must(p, chromedp.Location()), p.base)
}

// Arrives waits until the page of a path is open.
func (p *Person) Arrives(path string) {
	p.t.Helper()
	p.until(fmt.Sprintf("the address is %s", path), func() bool {
		url, err := get(p, chromedp.Location())
		return err == nil && strings.TrimPrefix(url, p.base) == path
	})
}

// Text waits for the first element that matches the selector and returns its visible text. It repeats that if the page
// is replaced at the same moment.
func (p *Person) Text(selector string) (text string) {
	p.t.Helper()
	p.until(selector+" has a text", func() bool {
		var err error
		text, err = get(p, chromedp.Text(chromedp.CSS(selector), chromedp.NodeVisible))
		if err != nil && !strings.Contains(err.Error(), "No node with given id") {
			p.t.Fatalf("in the browser: %v\n%s", err, p.where())
		}
		return err == nil
	})
	return text
}

// Sees waits until the visible text of the page contains part, ignoring case and spacing.
func (p *Person) Sees(part string) {
	p.t.Helper()
	p.until(fmt.Sprintf("the page shows %q", part), func() bool { return p.shows(part) })
}

// SeesNot waits until the visible text of the page does not contain part.
func (p *Person) SeesNot(part string) {
	p.t.Helper()
	p.until(fmt.Sprintf("the page does not show %q", part), func() bool { return !p.shows(part) })
}

func (p *Person) shows(part string) bool {
	text, err := get(p, chromedp.Evaluate[string](body))
	return err == nil && strings.Contains(fold(text), fold(part))
}

func (p *Person) until(what string, holds func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("timed out waiting until %s\n%s", what, p.where())
		}
	}
}

func fold(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }

// Fill replaces the text of a field, as an input method does: the page gets one event, and not three per key.
func (p *Person) Fill(selector, text string) {
	p.t.Helper()
	p.Do(chromedp.WaitVisible(chromedp.CSS(selector)))
	Eval[bool](p, fmt.Sprintf(`(() => { const field = document.querySelector(%q); field.value = ""; field.focus(); `+
		`return true; })()`, selector))
	p.Do(command(input.InsertText, input.InsertTextParams{Text: text}))
}

// Choose selects the option with this value.
func (p *Person) Choose(selector, value string) {
	p.t.Helper()
	p.Do(chromedp.WaitVisible(chromedp.CSS(selector)))
	if !Eval[bool](p, fmt.Sprintf(`(() => {
		const s = document.querySelector(%q);
		s.value = %q;
		s.dispatchEvent(new Event("input", {bubbles: true}));
		s.dispatchEvent(new Event("change", {bubbles: true}));
		return s.value === %[2]q;
	})()`, selector, value)) {
		p.t.Fatalf("%s has no option %q\n%s", selector, value, p.where())
	}
}

// Click clicks the first element that matches the selector, when it is visible.
func (p *Person) Click(selector string) {
	p.t.Helper()
	p.Do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// Press clicks the first visible button or link with this text or label. It waits until the page has loaded.
// It finds and clicks in one step, because live pages replace their elements. An element that is covered by
// another one cannot be clicked.
func (p *Person) Press(label string) {
	p.t.Helper()
	const press = `((label) => {
		if (document.readyState !== "complete") return false;
		const found = [...document.querySelectorAll("button, a, summary")].find(e => e.checkVisibility() &&
			(e.textContent.trim().replace(/\s+/g, " ") === label || e.getAttribute("aria-label") === label));
		if (!found || found.disabled) return false;
		found.scrollIntoView({block: "center", behavior: "instant"});
		const box = found.getBoundingClientRect();
		const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
		if (!top || !(found.contains(top) || top.contains(found))) return false;
		found.click();
		return true;
	})(%q)`
	p.until(fmt.Sprintf("%q can be pressed", label), func() bool {
		found, err := get(p, chromedp.Evaluate[bool](fmt.Sprintf(press, label)))
		return err == nil && found
	})
}

// Width sets the width of the window in CSS pixels. A window of less than 600 pixels is a phone with a touch
// screen.
func (p *Person) Width(pixels int64) {
	p.t.Helper()
	p.Do(command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: pixels, Height: 900, DeviceScaleFactor: 1, Mobile: pixels < 600,
	}))
}

// Dark sets the preferred color scheme.
func (p *Person) Dark(on bool) {
	p.t.Helper()
	scheme := "light"
	if on {
		scheme = "dark"
	}
	p.Do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}))
}

// Scripts enables or disables JavaScript for pages that are opened from now on.
func (p *Person) Scripts(on bool) {
	p.t.Helper()
	p.Do(command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on}))
}

// Clipboard allows pages to use the clipboard, as a user's click does.
func (p *Person) Clipboard() {
	p.t.Helper()
	c := chromedp.FromContext(p.ctx)
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		_, err := chromedp.CallBrowser(p.ctx, browser.SetPermission, browser.SetPermissionParams{
			Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted,
			BrowserContextID: c.BrowserContextID,
		})
		if err != nil {
			p.t.Fatalf("allowing the clipboard: %v", err)
		}
	}
}

// Authenticator adds a virtual authenticator, which creates and uses passkeys without asking.
func (p *Person) Authenticator() {
	p.t.Helper()
	p.Do(
		command(webauthn.Enable, webauthn.EnableParams{}),
		command(webauthn.AddVirtualAuthenticator,
			webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{
				Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
				HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
			}}),
	)
}
