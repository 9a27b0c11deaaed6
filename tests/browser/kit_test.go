package browser

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The other tests rely on this: faults of a page are noticed.
func TestFaultsOfPagesAreSeen(t *testing.T) {
	pages := map[string]string{
		"content security policy": `<p style="color: red">inline</p>`,
		"log":                     `<img src="/missing.png" alt="">`,
		"console":                 `<script src="/console.js"></script>`,
		"exception":               `<script src="/exception.js"></script>`,
	}
	scripts := map[string]string{
		"/console.js": `console.error("broken")`, "/exception.js": `setTimeout(() => { throw new Error("broken") })`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		switch script, page := scripts[r.URL.Path], pages[strings.TrimPrefix(r.URL.Path, "/page/")]; {
		case script != "":
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = io.WriteString(w, script)
		case page != "":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `<!doctype html><html lang="en"><title>page</title><link rel="icon" href="data:,">`+page+
				`<p>end`)
		case r.URL.Path != "/favicon.ico":
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	b := Start(t)
	for kind := range pages {
		p := b.Person(t, server.URL)
		p.Open("/page/" + strings.ReplaceAll(kind, " ", "%20"))
		p.Sees("end")
		p.until("the fault is seen", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, fault := range p.faults {
				if strings.HasPrefix(fault, kind+":") {
					p.faults = nil
					return true
				}
			}
			return false
		})
		p.mu.Lock()
		p.expected = []string{""} // ignore all later faults
		p.faults = nil
		p.mu.Unlock()
	}
}
