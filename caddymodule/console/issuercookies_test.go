package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Cookies of any number and length change no answer, and the console sets few and small ones.
func TestIssuerCookies(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 8<<10)
	const flow = "__Host-postern-oidc-"
	many := func(name string, n int) (cookies []string) {
		for i := range n {
			cookies = append(cookies, fmt.Sprintf("%s%08d=x", name, i))
		}
		return cookies
	}
	for name, sent := range map[string][]string{
		"long, of another program": {"other=" + long},
		"long flow":                {flow + "AAAAAAAA=" + long},
		"long name of a flow":      {flow + long + "=x"},
		"long notice":              {"__Host-postern-notice=" + long},
		"long secret":              {"__Host-postern-secret=" + long},
		"long zone":                {"postern-zone=" + long},
		"many":                     many("other", 1000),
		"many flows":               many(flow, 1000),
		"too many":                 many("other", 5000), // for Go, which then has none
	} {
		others := func(r *http.Request) {
			r.Header.Set("Cookie", strings.Trim(r.Header.Get("Cookie")+"; "+strings.Join(sent, "; "), "; "))
		}
		check := func(what string, w *httptest.ResponseRecorder, status int) *httptest.ResponseRecorder {
			t.Helper()
			set := 0
			for _, line := range w.Header().Values("Set-Cookie") {
				set += len(line)
			}
			if w.Code != status || set > 2<<10 || strings.Contains(w.Body.String(), long) {
				t.Errorf("%s, %s: status %d, %d bytes of cookies: %s", name, what, w.Code, set, mainPart(w.Body.String()))
			}
			return w
		}
		o := newOffice(t) // in which no attempt has failed
		b, signedIn := o.browser(), o.browser()
		signedIn.signInAs(store0, "ada")
		status := map[bool]int{false: http.StatusOK, true: http.StatusSeeOther}[name == "too many"]
		check("sign-in page", b.request(http.MethodGet, "/console/sign-in", "", others), http.StatusOK)
		check("settings", signedIn.request(http.MethodGet, "/console/settings", "", others), status)
		check("audit log", signedIn.request(http.MethodGet, "/console/audit", "", others), status)
		wrong := backPath + "?state=AAAAAAAAAA&code=c"
		check("wrong answer", b.request(http.MethodGet, wrong, "", others), http.StatusBadRequest)
		back := b.leave(startPath, others)
		if name == "too many" {
			check("answer", b.request(http.MethodGet, back, "", others), http.StatusBadRequest)
		} else {
			b.goes(check("answer", b.request(http.MethodGet, back, "", others), http.StatusSeeOther), "/console/")
		}
		check("start", b.request(http.MethodGet, startPath, "", others), http.StatusSeeOther)
	}
}
