package browser

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A user signs out while the page still opens its stream. The gateway aborts the stream. If it refused the
// stream, the page would redirect to the sign-in and hide that the user is signed out.
func testSignOutOfANewPage(t *testing.T, r *rig) {
	p := r.newUser("leaving", "lea")
	to, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	opens, ended, signedOut := make(chan struct{}), make(chan struct{}), make(chan struct{})
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		ModifyResponse: func(response *http.Response) error {
			if response.Request.URL.Path == "/console/sign-out" { // the browser gets the answer when the stream has ended
				close(signedOut)
				select {
				case <-ended:
				case <-time.After(patience):
				}
			}
			return nil
		},
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case strings.HasSuffix(req.URL.Path, "/hx-sse.min.js"):
			time.Sleep(300 * time.Millisecond) // like a slow line: the script before it runs earlier
		case req.URL.Path == "/console/events/settings":
			defer close(ended)
			close(opens)
			select {
			case <-signedOut:
			case <-req.Context().Done():
				return
			}
		}
		forward.ServeHTTP(w, req)
	}))
	t.Cleanup(proxy.Close)

	p.base = strings.Replace(proxy.URL, "127.0.0.1", "localhost", 1) // cookies are valid for all ports
	p.Open("/console/settings")
	p.until("the page opens its stream", func() bool {
		select {
		case <-opens:
			return true
		default:
			return false
		}
	})
	p.Press("Sign out")
	p.Arrives("/console/sign-in")
	p.Sees("You are signed out")
}
