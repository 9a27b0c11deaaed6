package cluster

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/tests/browser"
	"github.com/postern-dev/postern/tests/harness"
)

// A balancer sends each request to the next edge.
type balancer struct {
	URL  string
	sent []atomic.Int64 // number of requests by edge
}

func newBalancer(t *testing.T, edges []*gateway) *balancer {
	t.Helper()
	b := &balancer{sent: make([]atomic.Int64, len(edges))}
	var n atomic.Int64
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			i := int(n.Add(1)) % len(edges)
			b.sent[i].Add(1)
			to, err := url.Parse(edges[i].URL)
			if err != nil {
				t.Error(err)
				return
			}
			r.SetURL(to)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	b.URL = strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	return b
}

// TestConsoleOverEdges uses the console through a balancer that sends each request to another edge. It signs
// in with a password and a passkey, and pairs a device.
func TestConsoleOverEdges(t *testing.T) {
	t.Parallel()
	chromium := browser.Start(t)
	etcd := start(t, 1)
	edges := startConsoles(t, etcd)
	b := newBalancer(t, edges)
	p := chromium.Person(t, b.URL)
	createUser(t, edges[0].Gateway, p)

	p.Authenticator()
	p.Open("/console/settings")
	p.Fill(`#passkey-name`, "laptop")
	p.Press("Add a passkey")
	p.Sees("laptop")
	for range 2 { // with three edges, both steps use different ones
		p.Press("Sign out")
		p.Sees("signed out")
		p.Open("/console/sign-in")
		p.Press("Sign in with a passkey")
		p.Arrives("/console/start")
	}
	p.Sees("Ada")

	p.Click(`form[action="/console/start/pairing"] button`)
	code := strings.TrimSpace(p.Text(".claim"))
	edges[2].Pair(t, "box", code, "http://"+harness.FreeAddr(t), "--name", "box")
	p.Sees("waiting for approval") // the page updates itself
	p.Press("Approve")
	p.Sees("box approved")
	for i := range b.sent {
		if b.sent[i].Load() == 0 {
			t.Errorf("no request went to %s", edges[i].name)
		}
	}
}
