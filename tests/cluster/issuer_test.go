package cluster

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/issuertest"
)

// An edge is killed after it has sent a browser to the issuer. Another edge takes the answer, and none takes it again.
func TestIssuerOverEdges(t *testing.T) {
	t.Parallel()
	fake, etcd := issuertest.New(t), start(t, 1)
	newEdge := func(name, redirect string) *gateway {
		o := inEtcd(name+"\n advertise $UDP", etcd.urls()...)
		o.Address, o.Lines = "localhost", fmt.Sprintf(`model_console {
			%s
			oidc %s {
				client_id %s
				members team
				name company
			}
		}`, redirect, fake.URL, issuertest.ClientID)
		return &gateway{Gateway: harness.Start(t, o), name: name}
	}
	a := newEdge("a", "")
	b := newEdge("b", "redirect_url "+a.URL)
	jar, err := cookiejar.New(nil)
	must(t, err)
	client := &http.Client{
		Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	get := func(address string, cookies ...*http.Cookie) (status int, to, page string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, address, http.NoBody)
		must(t, err)
		for _, c := range cookies {
			r.AddCookie(c)
		}
		answer, err := client.Do(r)
		must(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		must(t, err)
		return answer.StatusCode, answer.Header.Get("Location"), string(body)
	}
	_, to, _ := get(a.URL + "/console/sign-in/oidc/company")
	_, back, page := get(to)
	atB := strings.Replace(back, a.URL, b.URL, 1)
	if atB == back {
		t.Fatalf("the issuer sends the browser to %q: %s", back, page)
	}
	a.Process.Signal(t, syscall.SIGKILL)
	a.Process.WaitExit(t, limit)
	home, err := url.Parse(a.URL) // cookies are for all ports of the host
	must(t, err)
	flow := jar.Cookies(home)
	if status, to, page := get(atB); status != http.StatusSeeOther || to != "/console/" {
		t.Fatalf("the answer at b: %d %q: %s", status, to, page)
	}
	a.Restart(t)
	for _, g := range []*gateway{a, b} {
		if status, _, page := get(g.URL + "/console/models"); status != http.StatusOK || !strings.Contains(page, "ann") {
			t.Errorf("signed in at %s: %d %s", g.name, status, page)
		}
	}
	client.Jar = nil
	for _, address := range []string{back, atB} {
		if status, _, page := get(address, flow...); status != http.StatusBadRequest ||
			!strings.Contains(page, "<h1>Start again</h1>") {
			t.Errorf("the answer again: %d %s", status, page)
		}
	}
	var users []struct{ Name string }
	b.Manage(t, http.MethodGet, "/users", nil, &users)
	if n := fake.Asked("/token"); n != 1 || len(users) != 1 {
		t.Errorf("%d exchanges, the users %v", n, users)
	}
}
