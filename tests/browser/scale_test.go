package browser

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// The pages of a large account are short, and the search works. With -short, the account has a few pages.
func TestLargeAccount(t *testing.T) {
	t.Parallel()
	deployments, keys, connectors := 1000, 1000, 200
	if testing.Short() {
		deployments, keys, connectors = 110, 110, 110
	}
	r := newRig(t)
	p := r.firstUser("ada")
	var connector struct{ ID string }
	for i := range connectors {
		r.Manage(t, http.MethodPost, "/connectors", map[string]string{"name": fmt.Sprintf("rack-%03d", i)}, &connector)
	}
	for i := range keys {
		r.Manage(t, http.MethodPost, "/keys", map[string]string{"name": fmt.Sprintf("key-%04d", i)}, nil)
	}
	for i := range deployments {
		name := fmt.Sprintf("org/model-%04d:7b", i)
		r.Manage(t, http.MethodPut, "/deployments/"+url.PathEscape(name),
			map[string]string{"connector": connector.ID, "model": "m"}, nil)
	}
	for _, tab := range []struct{ name, needle, found string }{
		{"models", "0077", "org/model-0077:7b"}, {"keys", "key-0088", "key-0088"}, {"connectors", "rack-099", "rack-099"},
	} {
		began := time.Now()
		p.Open("/console/" + tab.name)
		t.Logf("the tab %s took %v", tab.name, time.Since(began))
		if rows := Eval[int](p, `document.querySelectorAll("main tbody tr").length`); rows != 50 {
			t.Errorf("the tab %s shows %d rows, not a page of 50", tab.name, rows)
		}
		p.Look(tab.name + "-large")
		p.Press("Next")
		p.Sees("51 to 100 of")
		p.Fill("#q", tab.needle)
		p.Sees(tab.found)
		p.until("the search leaves one", func() bool {
			return Eval[int](p, `document.querySelectorAll("main tbody tr").length`) == 1
		})
		p.Arrives("/console/" + tab.name + "?q=" + tab.needle)
		p.Open(p.Path()) // as from a bookmark
		if rows := Eval[int](p, `document.querySelectorAll("main tbody tr").length`); rows != 1 {
			t.Errorf("the address of the search in %s shows %d rows", tab.name, rows)
		}
		Eval[bool](p, `(() => { const q = document.querySelector("#q"); q.value = ""; return q.dispatchEvent(new `+
			`Event("input", {bubbles: true})); })()`)
		p.Arrives("/console/" + tab.name)
		p.Sees("1 to 50 of")
	}
	p.Open("/console/home")
	const tight = `[...document.querySelectorAll(".numbers dd")].filter(dd => dd.scrollWidth > dd.clientWidth).length`
	for _, width := range []int64{1280, 1024, 390} {
		p.Width(width)
		if n := Eval[int](p, `(document.querySelectorAll(".numbers dd a").forEach(a => { `+
			`a.textContent = "1000 of 1000"; }), `+
			tight+`)`); n > 0 {
			t.Errorf("at %d px, %d numbers of Home are wider than their columns", width, n)
		}
	}
	p.Look("home-large")
	p.Open("/console/keys/new")
	p.Fill("#scope", "org/model-00*")
	p.Sees("100 models match")
	p.Look("key-new-large")
	p.Open("/console/start")
	p.Look("start-large")
}
