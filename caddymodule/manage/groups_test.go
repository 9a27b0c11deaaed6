package manage_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Admins change groups, members of the account see their own and use what these allow, viewers see all.
func TestGroupsOfRoles(t *testing.T) {
	w := newWorld(t)
	mia, other, vera := w.as(store.RoleMember), w.user("default", "mine-other"), w.as(store.RoleViewer)
	group := wantAs[manage.Group](w.gateway, w.mine, 200, "PATCH", "/groups/mine-group",
		`{"members":["mine-member","MINE-OTHER"],"scope":"mine*","limits":{"tokens_per_day":100}}`)
	if !slices.Equal(group.MemberNames, []string{"mine-member", "mine-other"}) ||
		group.Members[0] != min(mia.User, other.User) {
		t.Errorf("%+v", group)
	}
	wantAs[manage.Group](w.gateway, w.mine, 201, "POST", "/groups", `{"name":"second","members":["mine-user"]}`)
	key := wantAs[manage.CreatedKey](w.gateway, mia, 201, "POST", "/keys", `{"name":"mias","group":"mine-group"}`)
	w.refused(mia, http.StatusConflict, "PATCH", "/keys/mias", `{"group":"second"}`, "not in the group")
	w.activity.Record("default", activity.Request{
		ID: "req_1", Time: time.Now(), KeyID: key.ID, Deployment: "mine-deployment", Status: 200, InputTokens: 85,
		DurationMillis: 1,
	})
	wantAs[manage.Key](w.gateway, w.mine, 200, "PATCH", "/keys/mias", `{"note":"x"}`)
	groups := func(c manage.Caller) (all []manage.Group) {
		t.Helper()
		if err := json.Unmarshal(w.doAs(c, "GET", "/groups", "").Body.Bytes(), &all); err != nil {
			t.Error(err)
		}
		return all
	}
	for _, c := range []manage.Caller{w.mine, vera} {
		if all := groups(c); len(all) != 2 || len(all[0].MemberNames) != 2 || all[0].Keys != 1 || all[0].TokensToday != 85 ||
			all[0].TokensMonth != 85 || all[1].TokensMonth != 0 {
			t.Errorf("%s sees %+v", c.Name, all)
		}
	}
	if all := groups(mia); len(all) != 1 || !slices.Equal(all[0].MemberNames, []string{"mine-member"}) ||
		!slices.Equal(all[0].Members, []string{mia.User}) || all[0].TokensToday != 85 {
		t.Errorf("a member sees %+v", all)
	}
	w.refused(mia, http.StatusNotFound, "GET", "/groups/second", "", "not found")
	models := func(f store.KeyFields) string {
		t.Helper()
		all, err := w.service.KeyModels(manage.WithCaller(t.Context(), mia), f)
		must(t, err)
		var names []string
		for _, d := range all {
			names = append(names, d.Name)
		}
		return strings.Join(names, " ")
	}
	if got := models(store.KeyFields{Scope: "*", Owner: mia.User}); got != "mine-deployment" {
		t.Errorf("in a group: %q", got)
	}
	wantAs[manage.Group](w.gateway, w.mine, 200, "PATCH", "/groups/mine-group", `{"scope":"x"}`)
	if got := models(store.KeyFields{Scope: "*", Owner: mia.User}); got != "" {
		t.Errorf("after the scope was narrowed: %q", got)
	}
	wantAs[manage.Group](w.gateway, w.mine, 200, "PATCH", "/groups/mine-group", `{"members":[]}`)
	state := func() manage.Key { return wantAs[manage.Key](w.gateway, mia, 200, "GET", "/keys/mias", "") }
	if k := state(); k.State != store.KeySuspended || k.GroupName != "mine-group" {
		t.Errorf("after its owner has left: %+v", k)
	}
	if got := models(state().KeyFields); got != "" {
		t.Errorf("a suspended key may use %q", got)
	}
	wantAs[manage.Key](w.gateway, mia, 200, "PATCH", "/keys/mias", `{"group":""}`)
	if got := models(state().KeyFields); got != "mine-deployment" || state().State != store.KeyValid {
		t.Errorf("without a group: %q", got)
	}
	account := wantAs[store.Account](w.gateway, w.mine, 200, "PATCH", "/accounts/default", `{"groups_only":true}`)
	if got := models(state().KeyFields); got != "" || !account.GroupsOnly {
		t.Errorf("with groups only: %q", got)
	}
	if a := wantAs[store.Account](w.gateway, w.mine, 200, "PATCH", "/accounts/default", `{"max_keys":9}`); !a.GroupsOnly {
		t.Error("another change of the account has reset groups_only")
	}
	w.refused(w.mine, http.StatusNotFound, "POST", "/groups", `{"name":"x","members":["nobody"]}`, `"nobody"`)
}

// A removed user whose keys remain stays a member.
func TestGroupOfRemovedUser(t *testing.T) {
	w := newWorld(t)
	mia := w.as(store.RoleMember)
	wantAs[manage.Group](w.gateway, w.mine, 200, "PATCH", "/groups/mine-group", `{"members":["mine-member"]}`)
	wantAs[manage.CreatedKey](w.gateway, mia, 201, "POST", "/keys", `{"name":"mias"}`)
	wantAs[manage.RemovedUser](w.gateway, w.mine, 200, "DELETE", "/users/mine-member?keys=keep", "")
	for _, body := range []string{`{"members":["mine-user"]}`, `{"members":["mine-user","mine-member (removed)"]}`} {
		g := wantAs[manage.Group](w.gateway, w.mine, 200, "PATCH", "/groups/mine-group", body)
		if !slices.Equal(g.MemberNames, []string{"mine-member (removed)", "mine-user"}) || g.Keys != 2 {
			t.Errorf("%+v", g)
		}
	}
}

// A user who was removed without keys does not keep the group from being changed.
func TestGroupOfRemovedUserWithoutKeys(t *testing.T) {
	w := newWorld(t)
	w.user("default", "mine-other")
	wantAs[manage.Group](w.gateway, w.mine, 200, "PATCH", "/groups/mine-group", `{"members":["mine-other","mine-user"]}`)
	wantAs[manage.RemovedUser](w.gateway, w.mine, 200, "DELETE", "/users/mine-other", "")
	g := wantAs[manage.Group](w.gateway, w.mine, 200, "PATCH", "/groups/mine-group", `{"scope":"x"}`)
	if g.Scope != "x" || !slices.Contains(g.MemberNames, "mine-user") {
		t.Errorf("%+v", g)
	}
}

// A member cannot pass the limits of a group with a key that leaves its sums.
func TestMembersKeepUsedKeysInGroups(t *testing.T) {
	w := newWorld(t)
	mia := w.as(store.RoleMember)
	wantAs[manage.Group](w.gateway, w.mine, 200, "PATCH", "/groups/mine-group", `{"members":["mine-member"]}`)
	key := wantAs[manage.CreatedKey](w.gateway, mia, 201, "POST", "/keys", `{"name":"mias"}`)
	for _, group := range []string{"mine-group", "", "mine-group"} { // it is unused
		wantAs[manage.Key](w.gateway, mia, 200, "PATCH", "/keys/mias", `{"group":"`+group+`"}`)
	}
	live, _ := w.store.FindKey(key.Key)
	w.store.Touch(live.LiveKey)
	w.refused(mia, http.StatusForbidden, "PATCH", "/keys/mias", `{"group":""}`, "used in this month")
	w.refused(mia, http.StatusForbidden, "DELETE", "/keys/mias?record=remove", "", "used in this month")
	if k := wantAs[manage.Key](w.gateway, mia, 200, "PATCH", "/keys/mias", `{"group":"mine-group"}`); k.State != "valid" {
		t.Errorf("%+v", k)
	}
	wantAs[manage.Key](w.gateway, w.mine, 200, "PATCH", "/keys/mias", `{"group":""}`)
	wantAs[manage.DeletedKey](w.gateway, mia, 200, "DELETE", "/keys/mias", "")
	if err := w.service.RemoveKey(manage.WithCaller(t.Context(), mia), key.ID); err == nil {
		t.Error("a member has removed a used key")
	}
	wantAs[manage.DeletedKey](w.gateway, w.mine, 200, "DELETE", "/keys/"+key.ID+"?record=remove", "")
}
