package console

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

// The form of a key sets how it names people; its page leads to their usage, where each can be forgotten.
func TestPeople(t *testing.T) {
	g := newGateway(t)
	has(t, g.page("/console/keys/new"), `name="user_header"`, `name="person_requests_per_day"`)
	lacks(t, g.page("/console/keys/new"), "person_tokens_per_month")
	page := g.post("/console/keys", "name", "webui", "scope", "*", "user_header", "Cookie").Body.String()
	has(t, page, "Header that names the person: The header Cookie has another meaning", `value="Cookie"`)
	g.post("/console/keys", "name", "webui", "scope", "*", "user_header", "X-OpenWebUI-User-Email",
		"requests_per_minute", "", "person_requests_per_day", "1k")
	k := g.store.Keys(store.DefaultAccount)[0]
	if k.UserHeader != "X-Openwebui-User-Email" || k.PersonLimits.RequestsPerDay != 1000 {
		t.Fatalf("%+v", k.PersonFields)
	}
	record := func(person string, tokens int) {
		g.log.Record(store.DefaultAccount, activity.Request{
			ID: fmt.Sprint("req_", tokens), Time: g.now(), KeyID: k.ID, KeyName: "webui", Deployment: "m",
			Person: g.log.Person(t.Context(), store.DefaultAccount, k.ID, person), InputTokens: tokens, BusyMillis: 1,
			Status: 200,
		})
	}
	for i, person := range []string{"anna@example.com", "bert<b>", ""} {
		record(person, 100*(i+1))
	}
	show, people := "/console/keys/"+k.ID, "/console/people?key="+k.ID
	page = g.page(show)
	has(t, page, `href="`+people+`"`, `value="X-Openwebui-User-Email"`, `name="person_requests_per_day" value="1000"`)
	page = g.page(people)
	has(t, page, "anna@example.com", "bert&lt;b&gt;", "others", "X-Openwebui-User-Email")
	if strings.Index(page, "anna@") < strings.Index(page, "bert") {
		t.Error("the person with the most tokens is not first")
	}
	if sorted := g.page(people + "&sort=name"); strings.Index(sorted, "anna@") > strings.Index(sorted, "bert") &&
		strings.Contains(sorted, `aria-sort="ascending"`) {
		t.Error("not sorted by name")
	}
	for _, days := range []string{"1", "7", "62", "x", "-99999999999"} {
		has(t, g.page(people+"&days="+days), "anna@example.com")
	}
	requests := g.page("/console/activity")
	has(t, requests, "anna@example.com", "/console/activity/req_100")
	for _, page := range []string{page, requests, g.page("/console/activity/req_100")} {
		if strings.Contains(strings.Join(regexp.MustCompile(`href="[^"]*"`).FindAllString(page, -1), " "), "anna") {
			t.Error("a link names a person")
		}
	}
	has(t, g.page("/console/activity?q=anna@"), "anna@example.com")
	lacks(t, mainOf(g.page("/console/activity?q=carl@")), "anna@example.com")
	g.goes(g.post(show+"/forget", "person", "anna@example.com"), people)
	page = g.page(people)
	has(t, page, "webui has forgotten the person.", "bert")
	lacks(t, page, "anna@")
	lacks(t, g.page("/console/audit"), "anna@")
	has(t, g.page("/console/audit"), "deleted the usage of a person behind the key")
	lacks(t, mainOf(g.page("/console/activity")), "anna@")
	if w := g.post(show+"/forget", "person", ""); w.Code != http.StatusBadRequest {
		t.Errorf("no name: %d", w.Code)
	}
	g.post(show, "name", "webui", "scope", "*", "user_field", "true", "requests_per_minute", "",
		"person_requests_per_day", "")
	if k, _ := g.store.Key(store.DefaultAccount, k.ID); !k.UserField || k.UserHeader != "" || k.PersonLimits.Any() {
		t.Errorf("%+v", k.PersonFields)
	}
}
