package manage_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// A user can make many changes at once, and then some a second. Others, and operators, need not wait.
func TestWritesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		ann, bob := g.user("default", "ann"), g.user("default", "bob")
		admitted := func() (n int) {
			for {
				a := g.doAs(ann, "POST", "/keys/none/enable", "{}")
				switch {
				case a.Code == http.StatusNotFound && n < 1000:
					n++
					continue
				case a.Code != http.StatusTooManyRequests || a.Header().Get("Retry-After") != "1" ||
					!strings.HasPrefix(a.Body.String(),
						`{"error":"too many changes: a user can make 200 at once, and then 10 a second;`):
					t.Errorf("%d %v %s", a.Code, a.Header(), a.Body)
				}
				return n
			}
		}
		if n := admitted(); n != 200 {
			t.Errorf("%d changes at once", n)
		}
		for range 300 {
			if a := g.do("POST", "/keys/none/enable", "{}"); a.Code != http.StatusNotFound {
				t.Fatalf("an operator: %d %s", a.Code, a.Body)
			}
		}
		g.refused(bob, http.StatusNotFound, "POST", "/keys/none/enable", "{}", "")
		if a := g.doAs(asToken(ann, store.RightKeys), "POST", "/keys/none/enable", "{}"); a.Code != http.StatusNotFound {
			t.Errorf("a token of the user: %d %s", a.Code, a.Body)
		}
		if a := g.doAs(ann, "GET", "/keys", ""); a.Code != http.StatusOK {
			t.Errorf("a list: %d %s", a.Code, a.Body)
		}
		time.Sleep(time.Second)
		if n := admitted(); n != 10 {
			t.Errorf("%d changes after a second", n)
		}
		time.Sleep(time.Minute)
		if n := admitted(); n != 200 {
			t.Errorf("%d changes after a rest", n)
		}
	})
}
