package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

// The audit log shows who did what and from where, and can be filtered without scripts.
func TestAuditPage(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ada, grace := h.in(h.user(store0, "ada")), h.in(h.user(store0, "grace"))
	lacks(t, ada.page("/console/audit"), "<table")
	h.pass(time.Hour)
	for i := range pageSize + 1 {
		h.pass(time.Second)
		ada.post("/console/keys", "name", fmt.Sprint("key ", i), "scope", "*")
	}
	h.pass(time.Second)
	grace.post("/console/keys", "name", `<b>"box"`, "scope", "*")
	page := ada.page("/console/audit")
	has(t, page, "key.create", "&lt;b&gt;", "grace", "192.0.2.1", "key 50", `aria-current="page">Settings`,
		"created the key <a href=\"/console/keys/key_", "<th colspan=\"3\"")
	lacks(t, page, ">key 1<", "sk-svc-")
	next := page[strings.Index(page, `rel="next"`)-200:]
	has(t, next, "page=2")
	has(t, ada.page("/console/audit?page=2&by=ada&operation=key"), ">key 0<", "51 operations")
	page = ada.page("/console/audit?by=grace")
	has(t, page, "&lt;b&gt;", `<option value="grace" selected>grace`, "1 operation.")
	lacks(t, page, "key 50")
	has(t, page, `href="/console/api/audit?by=grace&amp;format=csv" download`)
	if file := ada.page("/console/api/audit?by=grace&format=csv"); strings.Count(file, "\n") != 2 {
		t.Error(file)
	}
	has(t, ada.page("/console/audit?q=%3Cb%3E"), "&lt;b&gt;", "1 operation.")
	has(t, ada.page("/console/audit?from=2200-01-01"), "No operation matches")
	ada.refused(ada.get("/console/audit?to=tomorrow"), 400, "")
}

// Without scripts, times are in UTC, as the footer says. The zone of a browser with scripts is known by its cookie.
func TestTimes(t *testing.T) {
	g := newGateway(t)
	k, _, err := g.store.CreateKey(t.Context(), store.DefaultAccount,
		store.KeyFields{Name: "laptop", Scope: "*", ExpiresAt: new(time.Now().Add(90 * 24 * time.Hour))})
	must(t, err)
	g.post("/console/keys", "name", "ci", "scope", "*")
	g.log.Record(store.DefaultAccount, activity.Request{ID: "req_1", Time: time.Now(), KeyID: k.ID})
	for _, path := range []string{
		"settings", "keys", "keys/" + k.ID, "activity", "activity/req_1", "audit",
		"usage?by=day",
	} {
		page := g.page("/console/" + path)
		has(t, page, `<span data-zone>Times are in UTC.</span>`)
		if path != "usage?by=day" {
			has(t, page, ` UTC">`) // the title
		}
		lacks(t, mainOf(page), " UTC<")
	}
	has(t, mainOf(g.page("/console/activity/req_1")), time.Now().UTC().Format(">2 Jan 2006, 15:"))
	g.cookies["postern-zone"] = &http.Cookie{Name: "postern-zone", Value: "Pacific/Kiritimati"}
	east := time.FixedZone("", 14*3600)
	has(t, mainOf(g.page("/console/audit")), time.Now().In(east).Format("Monday, 2 January 2006"),
		time.Now().In(east).Format(">15:"))
}
