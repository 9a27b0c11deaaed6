package browser

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	testrig "github.com/postern-dev/postern/tests/rig"
)

// screenshots is the environment variable with the folder for the pictures of [Person.Look].
const screenshots = "POSTERN_SCREENSHOTS"

// Look checks the current page on a phone and on a wide screen, light and dark, for accessibility and for
// clipped content, also at 320 px. With -short, it checks one of these views and 320 px. It saves pictures if
// the environment names a folder.
func (p *Person) Look(name string) {
	p.t.Helper()
	views := []struct {
		width  int64
		scheme string
	}{{390, "dark"}, {1280, "light"}, {390, "light"}, {1280, "dark"}}
	if testing.Short() && os.Getenv(screenshots) == "" {
		h := fnv.New32a()
		_, _ = h.Write([]byte(name)) // never fails
		i := h.Sum32() % uint32(len(views))
		views = views[i : i+1]
	}
	for _, v := range views {
		p.Width(v.width)
		p.Dark(v.scheme == "dark")
		view := fmt.Sprintf("%s-%d-%s", name, v.width, v.scheme)
		p.fits(view)
		p.accessible(view)
		p.shoot(view)
	}
	p.Dark(false)
	p.Width(320)
	p.fits(name + "-320")
	p.Width(1280)
}

// fits fails the test if the page is wider than the window, because a phone would have to scroll sideways.
func (p *Person) fits(view string) {
	p.t.Helper()
	wide := Eval[struct {
		Page     int      `json:"page"`
		Window   int      `json:"window"`
		Culprits []string `json:"culprits"`
	}](p, `(() => {
		const width = document.documentElement.clientWidth;
		const culprits = [...document.body.querySelectorAll("*")].filter(e => {
			if (e.getBoundingClientRect().right <= width + 1) return false;
			for (let up = e.parentElement; up; up = up.parentElement) {
				if (getComputedStyle(up).overflowX !== "visible") return false;
			}
			return true;
		}).slice(0, 5).map(e => e.outerHTML.slice(0, 120));
		return {page: document.documentElement.scrollWidth, window: width, culprits};
	})()`)
	if wide.Page > wide.Window {
		p.t.Errorf("%s: the page is %d px wide, the window %d: %s", view, wide.Page, wide.Window,
			strings.Join(wide.Culprits, "\n"))
	}
}

// A violation is a violation of an accessibility rule, as axe-core reports it.
type violation struct {
	ID     string `json:"id"`
	Impact string `json:"impact"`
	Help   string `json:"help"`
	Nodes  []struct {
		HTML    string `json:"html"`
		Summary string `json:"summary"`
	} `json:"nodes"`
}

// accessible fails the test if there are serious or critical violations.
func (p *Person) accessible(view string) {
	p.t.Helper()
	source, err := axe()
	if err != nil {
		p.t.Fatal(err)
	}
	if source == "" {
		return
	}
	if !Eval[bool](p, "!!window.axe") {
		Eval[bool](p, source+"; true")
	}
	violations := Eval[[]violation](p, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(
		({id, impact, help, nodes}) => 
			({id, impact, help, nodes: nodes.map(n => ({html: n.html, summary: n.failureSummary}))})))`)
	for _, v := range violations {
		if v.Impact != "serious" && v.Impact != "critical" {
			continue
		}
		for _, node := range v.Nodes {
			p.t.Errorf("%s: %s (%s): %s\n\t%s", view, v.Help, v.ID, node.HTML, strings.ReplaceAll(node.Summary, "\n", "\n\t"))
		}
	}
}

// shoot saves a picture of the whole page.
func (p *Person) shoot(view string) {
	p.t.Helper()
	dir := os.Getenv(screenshots)
	if dir == "" {
		return
	}
	beyond := true
	picture, err := chromedp.Call(p.ctx, page.CaptureScreenshot,
		page.CaptureScreenshotParams{CaptureBeyondViewport: &beyond})
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, view+".png"), picture.Data, 0o644)
	}
	if err != nil {
		p.t.Errorf("%s: taking a picture: %v", view, err)
	}
}

// axe returns the source of axe-core, which npm installs on first use, or "" with POSTERN_SKIP_NODE=1.
var axe = sync.OnceValues(func() (string, error) {
	if os.Getenv("POSTERN_SKIP_NODE") == "1" {
		return "", nil
	}
	root, err := testrig.Root() // other packages use this, too
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "tests", "browser")
	if err := testrig.NPM(dir); err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	return string(source), err
})
