package cluster

import (
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/browser"
	"github.com/postern-dev/postern/tests/harness"
)

// startConsoles starts the edges a, b and c with consoles.
func startConsoles(t *testing.T, etcd servers) (edges []*gateway) {
	t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		o := inEtcd(name+"\n advertise $UDP", etcd.urls()...)
		o.Console = true
		edges = append(edges, &gateway{Gateway: harness.Start(t, o), name: name})
	}
	return edges
}

// createUser creates the first user with the setup link of a gateway, and signs in.
func createUser(t *testing.T, g *harness.Gateway, p *browser.Person) {
	t.Helper()
	var link struct{ URL string }
	g.Command(t, &link, "setup-link")
	_, secret, _ := strings.Cut(link.URL, "#")
	g.Hide(secret)
	p.Open(strings.TrimPrefix(link.URL, g.URL))
	p.Fill(`input[name="name"]`, "Ada")
	p.Fill(`input[name="password"]`, "correct-horse-battery-staple")
	p.Click(`main form button:not([type="button"])`)
	p.Arrives("/console/start")
}

// TestEdgesPage checks the page of the edges in all states, while a user drains one edge, removes a stopped
// one, and while etcd is down.
func TestEdgesPage(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	etcd := start(t, 1)
	var edges []*harness.Gateway
	for _, more := range []string{
		"name edge-1\n on_store_loss 30m\n advertise edge-1.eu-central-1.gateway.example.com:7443",
		"name edge-2\n  on_store_loss deny",
		"name edge-3\n on_store_loss 30m",
	} {
		o := inEtcd("", etcd.urls()...)
		o.App, o.Console = "edge {\n "+more+"\n}", true
		edges = append(edges, harness.Start(t, o))
	}
	p := chromium.Person(t, edges[0].URL)
	createUser(t, edges[0], p)

	p.Open("/console/edges")
	p.Sees("3 of 3 serving")
	p.Press("Drain edge-2")
	p.Sees("edge-2 drains")
	p.Sees("2 of 3 serving")
	edges[2].Process.Signal(t, syscall.SIGKILL)
	edges[2].Process.WaitExit(t, limit)
	p.Sees("1 of 3 serving") // the page updates itself
	p.Sees("may serve without the store")
	p.Look("edges")
	p.Press("Undrain edge-2")
	p.Sees("2 of 3 serving")
	p.Press("Remove edge-3")
	p.Sees("Remove edge-3?")
	p.Look("edge-remove")
	p.Click(`input[name="stopped"]`)
	p.Press("Remove edge-3")
	p.Sees("edge-3 is removed")
	p.Sees("2 of 2 serving")
	edges[1].Process.Signal(t, syscall.SIGKILL)
	edges[1].Process.WaitExit(t, limit)
	p.Sees("lost since")
	p.Look("edges-lost")

	etcd[0].Kill()
	p.Sees("This edge, edge-1, has had no contact with the store")
	p.Open("/console/edges")
	p.Sees("no contact with the store")
	p.Sees("serving without the store")
	p.Sees("1 of 2 serving, 1 unknown")
	p.SeesNot("Remove") // it does not know the other edge
	p.Look("edges-without-store")
	p.Open("/console/home")
	p.Sees("Gateway edge-1: serving without the store until")
	etcd[0].start(t)
	p.SeesNot("serving without the store")
}
