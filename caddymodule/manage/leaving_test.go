package manage_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// A user with keys is removed only with a choice for them. It holds for keys that are not revoked, and the last admin
// loses none.
func TestRemoveUserWithKeys(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		choice, state, owner string
	}{
		{"revoke", store.KeyRevoked, "chen (removed)"},
		{"keep", store.KeyValid, "chen (removed)"},
		{"give=bert", store.KeyValid, "bert"},
	} {
		t.Run(tt.choice, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			anna, bert, chen := g.user("default", "anna"), g.user("default", "bert"), g.user("default", "chen")
			wantAs[manage.CreatedKey](g, chen, 201, "POST", "/keys", `{"name":"old","scope":"*"}`)
			wantAs[manage.DeletedKey](g, chen, 200, "DELETE", "/keys/old", "")
			laptop := wantAs[manage.CreatedKey](g, chen, 201, "POST", "/keys", `{"name":"laptop","scope":"*"}`)
			wantAs[manage.CreatedKey](g, bert, 201, "POST", "/keys", `{"name":"desk","scope":"*"}`)
			g.activity.Record("default", activity.Request{
				ID: "r1", Time: time.Now(), KeyID: laptop.ID, KeyName: "laptop", Deployment: "m", Status: 200,
			})
			g.refused(anna, http.StatusConflict, "DELETE", "/users/chen", "", "1 API key (laptop)")
			g.refused(anna, http.StatusBadRequest, "DELETE", "/users/chen?keys=burn", "", "revoke, keep, or give=NAME")
			g.refused(anna, http.StatusNotFound, "DELETE", "/users/chen?keys=give=dora", "", "dora")
			g.refused(anna, http.StatusBadRequest, "DELETE", "/users/chen?keys=give=chen", "", "another user")

			removed := wantAs[manage.RemovedUser](g, anna, 200, "DELETE", "/users/chen?keys="+tt.choice, "")
			if len(removed.Keys) != 1 || removed.Keys[0].State != tt.state || removed.Keys[0].OwnerName != tt.owner {
				t.Errorf("removed %+v", removed)
			}
			for name, owner := range map[string]string{"laptop": tt.owner, "old": "chen (removed)", "desk": "bert"} {
				if k := wantAs[manage.Key](g, anna, 200, "GET", "/keys/"+name, ""); k.OwnerName != owner {
					t.Errorf("the owner of %s is %q", name, k.OwnerName)
				}
			}
			sums := wantAs[[]manage.UsageSum](g, anna, 200, "GET", "/usage?by=user", "")
			if len(sums) != 1 || sums[0].UserName != tt.owner {
				t.Errorf("usage %+v", sums)
			}
			if tt.owner == "bert" {
				return
			}
			byName := wantAs[[]manage.UsageSum](g, anna, 200, "GET", "/usage?by=key&user=chen%20%28removed%29", "")
			found := wantAs[manage.Requests](g, anna, 200, "GET", "/activity?user="+chen.User, "")
			if len(byName) != 1 || len(found.Requests) != 1 {
				t.Errorf("usage %+v, activity %+v", byName, found)
			}
			if tt.choice == "keep" {
				wantAs[manage.Key](g, anna, 200, "PATCH", "/keys/laptop", `{"owner":"`+chen.User+`","note":"of the printer"}`)
			}
		})
	}
}

// The keys of the last admin stay as they are, since the admin stays.
func TestRemoveLastAdminWithKeys(t *testing.T) {
	g := newGateway(t)
	anna, bert := g.user("default", "anna"), g.user("default", "bert")
	wantAs[manage.User](g, anna, 200, "PATCH", "/users/bert", `{"role":"member"}`)
	wantAs[manage.CreatedKey](g, bert, 201, "POST", "/keys", `{"name":"laptop","scope":"*"}`)
	wantAs[manage.CreatedKey](g, anna, 201, "POST", "/keys", `{"name":"desk","scope":"*"}`)
	g.refused(manage.Caller{Operator: true}, http.StatusConflict, "DELETE", "/users/anna?keys=revoke", "", "last admin")
	if k := wantAs[manage.Key](g, anna, 200, "GET", "/keys/desk", ""); k.State != store.KeyValid {
		t.Errorf("the key is %s", k.State)
	}
	removed := wantAs[manage.RemovedUser](g, anna, 200, "DELETE", "/users/bert?keys=keep", "")
	if !slices.ContainsFunc(removed.Keys, func(k manage.Key) bool { return k.Name == "laptop" }) {
		t.Errorf("%+v", removed)
	}
}
