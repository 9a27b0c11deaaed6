package console

import (
	"fmt"
	"strings"
	"testing"
	"time"
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
	has(t, ada.page("/console/audit?q=%3Cb%3E"), "&lt;b&gt;", "1 operation.")
	has(t, ada.page("/console/audit?from=2200-01-01"), "No operation matches")
	ada.refused(ada.get("/console/audit?to=tomorrow"), 400, "")
}
