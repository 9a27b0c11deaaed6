package console

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

// names returns the links of a page to records below a path, in their order.
func names(page, path string) (list []string) {
	links := regexp.MustCompile(`<a href="` + path + `[^"]*"[^>]*>(?:<[^>]*>)*([^<]+)<`)
	for _, found := range links.FindAllStringSubmatch(page, -1) {
		list = append(list, html.UnescapeString(found[1]))
	}
	return list
}

// The URL sorts and filters a list, and pages and column heads keep that.
func TestSortedList(t *testing.T) {
	type item struct {
		name  string
		used  *time.Time
		size  int64
		state []string
	}
	at := func(n int64) *time.Time { return new(time.Unix(n, 0)) }
	items := []item{
		{"beta", at(5), 1, []string{"on"}},
		{"Alpha", nil, 30, []string{"off"}},
		{"gamma", at(9), 2, []string{"on", "new"}},
		{"delta", nil, 30, nil},
	}
	c := columns[item]{
		name: "x", text: func(i item) string { return i.name + " a" }, orders: []string{"name", "used", "size"},
		values:  func(i item) []any { return []any{i.name, i.used, i.size} },
		filters: []filter[item]{{"state", "State", func(i item) []string { return i.state }}}, kept: []string{"show"},
	}
	for query, want := range map[string]string{
		"": "gamma beta Alpha delta", "sort=used": "gamma beta Alpha delta", "sort=-used": "Alpha delta beta gamma",
		"sort=name": "Alpha beta delta gamma", "sort=-name": "gamma delta beta Alpha", "sort=junk": "gamma beta Alpha delta",
		"sort=size": "Alpha delta gamma beta", "sort=-size": "beta gamma Alpha delta", "state=on": "gamma beta",
		"state=new&sort=name": "gamma", "state=gone": "", "q=a": "gamma beta Alpha delta", "q=DELTA": "delta",
		"q=beta&state=off": "", "q=A": "gamma beta Alpha delta",
	} {
		v := &visit{r: httptest.NewRequest(http.MethodGet, "/console/x?show=1&"+query, nil)}
		l := list(v, c, items)
		var got []string
		for _, i := range l.Items {
			got = append(got, i.name)
		}
		filtered := strings.Contains(query, "q=") || strings.Contains(query, "state")
		if strings.Join(got, " ") != want || l.Filtered != filtered {
			t.Errorf("%q: %q, filtered: %t", query, got, l.Filtered)
		}
	}
	v := &visit{r: httptest.NewRequest(http.MethodGet, "/console/x?show=1&state=on&sort=-size&q=a", nil)}
	l := list(v, c, items)
	if size, used, none := l.Head("size", "Size", "number"), l.Head("used", "Used", ""), l.Head("", "Key", ""); size !=
		(head{"Size", "number", "/console/x?q=a&show=1&sort=size&state=on", "ascending"}) ||
		used != (head{"Used", "", "/console/x?q=a&show=1&sort=used&state=on", ""}) || none != (head{Title: "Key"}) {
		t.Errorf("%+v %+v %+v", size, used, none)
	}
	if h := list(&visit{r: httptest.NewRequest(http.MethodGet, "/console/x", nil)}, c, items).Head("used", "", ""); h !=
		(head{"", "", "/console/x?sort=-used", "descending"}) {
		t.Errorf("by default: %+v", h)
	}
	if s := l.Selects; len(s) != 1 || s[0].Value != "on" || !slices.Equal(s[0].Options,
		[]named{{"new", "new"}, {"off", "off"}, {"on", "on"}}) {
		t.Errorf("%+v", s)
	}
}

// Keys are sorted by their last use. The heads of the columns, the filters, the pages and the live updates keep the
// rest of the URL.
func TestKeysSorted(t *testing.T) {
	h := newHouse(t)
	ada, bob := h.user(store0, "ada"), h.user(store0, "bob")
	b := h.in(ada)
	for i := range 60 {
		name, owner := fmt.Sprintf("Team Platform / service account for nightly evaluation %02d", i), ada.ID
		if i%2 == 1 {
			owner = bob.ID
		}
		fields := store.KeyFields{Name: name, Scope: "*", Owner: owner}
		if i == 11 {
			fields.ExpiresAt = new(time.Now().Add(time.Hour))
		}
		k, secret, err := h.store.CreateKey(t.Context(), store0, fields)
		must(t, err)
		if i == 7 || i == 40 {
			h.pass(time.Minute)
			live, _ := h.store.FindKey(secret)
			h.store.Touch(live.LiveKey)
		}
		if i == 3 {
			must(t, errOf(h.store.EnableKey(t.Context(), store0, k.ID, false)))
		}
	}
	page := b.page("/console/keys")
	rows := regexp.MustCompile(`title="Team Platform / service account for nightly evaluation (\d\d)`)
	order := func(page string) (list []string) {
		for _, found := range rows.FindAllStringSubmatch(page, -1) {
			list = append(list, found[1])
		}
		return list
	}
	if got := order(page); len(got) != 50 || !slices.Equal(got[:2], []string{"40", "07"}) {
		t.Errorf("by default: %q", got)
	}
	has(t, page, `<th scope="col" aria-sort="descending"><a href="/console/keys?sort=-used">Last used</a></th>`,
		`<th scope="col"><a href="/console/keys?sort=name">Name</a></th>`,
		`<span class="cut">Team Platform / service account for nightly eva</span>luation 40</a>`,
		`<select name="owner"><option value="">All</option><option value="ada">ada</option><option value="bob">`)
	if got := order(b.page("/console/keys?sort=expires")); got[0] != "11" {
		t.Errorf("the first to expire is %s", got[0])
	}
	page = b.page("/console/keys?sort=-name&owner=bob&state=active&page=9")
	if got := order(page); len(got) != 29 || got[0] != "59" || slices.Contains(got, "03") {
		t.Errorf("%q", got)
	}
	has(t, page, `<option value="bob" selected>`, `<input type="hidden" name="sort" value="-name">`,
		`aria-sort="descending"><a href="/console/keys?owner=bob&amp;sort=name&amp;state=active">Name</a>`,
		`hx-sse:connect="/console/events/keys?sort=-name&amp;owner=bob&amp;state=active&amp;page=9"`)
	has(t, b.page("/console/keys?state=disabled"), "evaluation 03")
	has(t, b.page("/console/keys?sort=name&q=nightly"),
		`href="/console/keys?page=2&amp;q=nightly&amp;sort=name" rel="next"`)
	has(t, b.page("/console/keys?state=expired"), "No key matches.", "Show all 60")
}

// Models are sorted by their requests of today, then by name without case. The model with the searched name comes
// first.
func TestModelsSorted(t *testing.T) {
	g := newGateway(t)
	server, other := g.connector("llama3.2"), g.connector("mac")
	for _, name := range []string{"Qwen", "bartowski", "llama3.2", "zephyr"} {
		g.deployment(name, server)
	}
	g.deployment("aya", other)
	for range 3 {
		g.record(0, activity.Request{KeyID: "key_1", Deployment: "zephyr", Status: http.StatusOK})
	}
	for query, want := range map[string]string{
		"": "zephyr aya bartowski llama3.2 Qwen", "?q=llama3.2": "llama3.2 zephyr bartowski Qwen",
		"?connector=mac": "aya", "?sort=-requests": "aya bartowski llama3.2 Qwen zephyr",
		"?sort=-name": "zephyr Qwen llama3.2 bartowski aya",
	} {
		got := strings.Join(names(mainOf(g.page("/console/models"+query)), `/console/models/show\?name=`), " ")
		if got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	has(t, g.page("/console/models?sort=failed"), `<th scope="col" class="number" aria-sort="descending">`)
	has(t, g.page("/console/connectors?sort=-name"),
		`aria-sort="descending"><a href="/console/connectors?sort=name">Name</a>`)
}
