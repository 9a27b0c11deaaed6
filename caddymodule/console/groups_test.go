package console

import (
	"html"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// An admin creates, changes and removes groups. Saving the page without a change keeps every field.
func TestGroups(t *testing.T) {
	g := newGateway(t)
	g.deployment("qwen3", g.connector("gpu-box"))
	bert := g.user(store0, "bert")
	has(t, g.page("/console/groups"), "No groups yet", "/console/groups/new")
	page := g.page("/console/groups/new")
	has(t, page, `value="`+bert.ID+`"`, "One model matches", `name="tokens_per_day"`)
	g.refused(g.post("/console/groups", "name", "research", "scope", "", "requests_per_minute", ""), http.StatusBadRequest,
		"Enter the models")
	w := g.post("/console/groups", "name", "research", "scope", "qwen*", "member", bert.ID, "max_priority", "normal",
		"claim", "r&d", "requests_per_minute", "", "tokens_per_day", "1k", "concurrency", "3")
	group := g.store.Groups(store0)[0]
	path := "/console/groups/" + group.ID
	g.goes(w, path)
	want := store.GroupFields{
		Name: "research", Members: []string{bert.ID}, Scope: "qwen*", MaxPriority: store.PriorityNormal, Claim: "r&d",
		Limits: limits.UsageLimits{TokensPerDay: 1000, Concurrency: 3},
	}
	if !reflect.DeepEqual(group.GroupFields, want) {
		t.Errorf("%+v, want %+v", group.GroupFields, want)
	}
	const issuer = "https://id.example.com"
	g.store.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer}})
	must(t, errOf(g.store.LinkIdentity(t.Context(), store0, bert.ID, issuer, "7")))
	_, _, _, err := g.store.SignInByIssuer(t.Context(), store.IssuerSignIn{
		Issuer: issuer, Subject: "7", Account: store0, Role: bert.Role, Groups: []string{"r&d"},
	})
	must(t, err)
	k, _, err := g.store.CreateKey(t.Context(), store0, store.KeyFields{Name: "berts", Scope: "*", Owner: bert.ID})
	must(t, err)
	g.record(0, activity.Request{KeyID: k.ID, Deployment: "qwen3", InputTokens: 850, DurationMillis: 1, Status: 200})
	page = g.page(path)
	has(t, page, "research is created.", "bert", "as of", "r&amp;d", "850", "of 1", "berts", `/console/keys/`+k.ID,
		"Concurrent requests</dt><dd>3")
	has(t, g.page("/console/groups?q=bert&sort=month"), "research", "850", "tokens/day")
	has(t, g.page("/console/groups?q=nobody"), "No group matches")
	has(t, g.page("/console/keys/"+k.ID), `<option value="`+group.ID+`">research</option>`)
	form := formOf(t, g.page(path), path)
	form["member"] = nil
	for _, m := range regexp.MustCompile(`name="member" value="(\w+)" checked`).FindAllStringSubmatch(g.page(path), -1) {
		form.Add("member", html.UnescapeString(m[1]))
	}
	g.goes(g.request(http.MethodPost, path, form.Encode()), path)
	if now := g.store.Groups(store0)[0]; !reflect.DeepEqual(now.GroupFields, want) || len(now.ByClaim) != 1 {
		t.Errorf("saved %+v, want %+v", now.GroupFields, want)
	}
	has(t, g.page("/console/audit"), `<a href="`+path+`">research</a>`)
	g.refused(g.post(path, "name", "", "scope", "*", "requests_per_minute", ""), http.StatusBadRequest,
		"name of the group")
	has(t, g.page(path+"/remove"), "Remove research?", "suspended at once", "<dd>1</dd>")
	g.goes(g.post(path+"/remove"), "/console/groups")
	has(t, g.page("/console/groups"), "research is removed.")
	g.refused(g.get(path), http.StatusNotFound, "not found")
}

// A key page says to which group the key was given, and why it is suspended. Saving it does not change that.
func TestKeyOfGroup(t *testing.T) {
	g := newGateway(t)
	for _, name := range []string{"a", "b"} {
		g.deployment(name, g.connector("box-"+name))
	}
	mia, b := g.ofRole(store.RoleMember)
	group, err := g.store.CreateGroup(t.Context(), store0, store.GroupFields{
		Name: "team", Scope: "a", Members: []string{mia.ID},
	})
	must(t, err)
	must(t, errOf(g.store.CreateGroup(t.Context(), store0, store.GroupFields{Name: "others", Scope: "b"})))
	page := b.page("/console/keys/new")
	has(t, page, "team", "One model matches")
	lacks(t, page, "others")
	lacks(t, mainOf(b.page("/console/groups")), "others", "/console/groups/new")
	w := b.post("/console/keys", "name", "mias", "scope", "*", "group", group.ID, "days", "never")
	k := g.store.Keys(store0)[0]
	b.goes(w, "/console/keys/"+k.ID+"/created")
	page = b.page("/console/keys/" + k.ID + "/created")
	has(t, page, `&#34;a&#34;`)
	lacks(t, page, `&#34;b&#34;`)
	path := "/console/keys/" + k.ID
	has(t, b.page(path), `<a href="/console/groups/`+group.ID+`">team</a>`)
	must(t, errOf(g.store.EditGroup(t.Context(), store0, "team", func(f *store.GroupFields) error {
		f.Members = nil
		return nil
	})))
	page = b.page(path)
	has(t, page, ">suspended</span>", "its owner is not in the group of the key", "Models now</dt><dd>none")
	b.goes(b.request(http.MethodPost, path, formOf(t, page, path).Encode()), path)
	if now, _ := g.store.Key(store0, k.ID); now.Group != group.ID || !now.LeftGroup {
		t.Errorf("saved %+v", now)
	}
	has(t, b.page("/console/keys"), ">suspended</span>")
	has(t, b.page("/console/keys/preview?scope=*&group="), "2 models match")
	has(t, b.page("/console/keys/preview?scope=*"), "2 models match")
	has(t, g.page("/console/keys/preview?scope=*&owner="+mia.ID+"&group="+group.ID), "No model matches")
	must(t, errOf(g.store.RemoveGroup(t.Context(), store0, "team")))
	page = b.page(path)
	has(t, page, "Group</dt><dd>removed", "a removed group")
	b.goes(b.request(http.MethodPost, path, formOf(t, page, path).Encode()), path)
	if now, _ := g.store.Key(store0, k.ID); now.Group != group.ID {
		t.Errorf("saved %+v", now)
	}
}

// The card of the account keeps groups_only.
func TestGroupsOnlyInSettings(t *testing.T) {
	g := newGateway(t)
	fields := []string{"scope", "*", "days", "never"}
	for _, name := range limits.Names() {
		fields = append(fields, "total_"+name, "", name, "")
	}
	for _, name := range store.RecordLimitNames() {
		fields = append(fields, name, "7")
	}
	for _, on := range []bool{true, false} {
		send := slices.Clone(fields)
		if on {
			send = append(send, "groups_only", "true")
		}
		g.goes(g.post("/console/settings/account", send...), "/console/settings")
		if a, _ := g.store.Account(store0); a.GroupsOnly != on || a.Limits.MaxKeys != 7 {
			t.Errorf("%+v", a)
		}
		if checked := `name="groups_only" value="true" checked`; on {
			has(t, g.page("/console/settings"), checked)
		} else {
			lacks(t, g.page("/console/settings"), checked)
		}
	}
}
