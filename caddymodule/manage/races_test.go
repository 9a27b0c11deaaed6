package manage_test

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// overtaken is a KV that calls a function before its next transaction: after its caller has checked
// what it reads, and before it writes.
type overtaken struct {
	store.KV
	by atomic.Pointer[func()]
}

func (o *overtaken) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if f := o.by.Swap(nil); f != nil {
		(*f)()
	}
	return o.KV.Txn(ctx, t)
}

// newOvertaken returns a gateway, its KV, and an admin and a member of the default account.
func newOvertaken(t *testing.T) (g *gateway, kv *overtaken, admin, member manage.Caller) {
	t.Helper()
	bolt, err := store.OpenBolt(filepath.Join(t.TempDir(), "gateway.db"), store.BoltOptions{})
	must(t, err)
	kv = &overtaken{KV: bolt}
	st, err := store.New(kv, store.Options{})
	must(t, err)
	t.Cleanup(func() { _ = st.Close() })
	g = newGatewayOn(t, st, nil)
	admin, member = g.user("default", "ann"), g.user("default", "mia")
	must(t, errOf(st.SetUserRole(t.Context(), "default", member.User, store.RoleMember)))
	return g, kv, admin, member
}

// An admin's change of a key wins over those of its owner that began before.
func TestAdminOvertakesMember(t *testing.T) {
	for name, c := range map[string]struct{ method, path, body string }{
		"a note":   {"PATCH", "", `{"note":"of the laptop"}`},
		"enable":   {"POST", "/enable", "{}"},
		"disable":  {"POST", "/disable", "{}"},
		"rotate":   {"POST", "/rotate", "{}"},
		"revoke":   {"DELETE", "", ""},
		"removing": {"DELETE", "?record=remove", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, kv, admin, member := newOvertaken(t)
			k := wantAs[manage.CreatedKey](g, member, 201, "POST", "/keys", `{"name":"laptop"}`)
			if name == "enable" {
				wantAs[manage.Key](g, member, 200, "POST", "/keys/laptop/disable", "{}")
			}
			kv.by.Store(new(func() { wantAs[manage.Key](g, admin, 200, "POST", "/keys/"+k.ID+"/disable", "{}") }))
			a := g.doAs(member, c.method, "/keys/"+k.ID+c.path, c.body)
			if a.Code != http.StatusForbidden || !strings.Contains(a.Body.String(), "was disabled by ann") {
				t.Errorf("a change that the admin has overtaken: %d %s", a.Code, a.Body)
			}
			g.refused(member, http.StatusForbidden, "POST", "/keys/"+k.ID+"/enable", "{}", "")
			now, ok := g.store.Key("default", k.ID)
			if !ok || now.State(time.Now()) != store.KeyDisabled || now.DisabledBy.Name != "ann" || now.Note != "" ||
				now.RotatedAt != nil {
				t.Errorf("the key is %+v", now)
			}

			wantAs[manage.Key](g, admin, 200, "POST", "/keys/"+k.ID+"/enable", "{}")
			kv.by.Store(new(func() { wantAs[manage.Key](g, admin, 200, "PATCH", "/keys/"+k.ID, `{"owner":"ann"}`) }))
			g.refused(member, http.StatusNotFound, c.method, "/keys/"+k.ID+c.path, c.body, "")
			if now, ok := g.store.Key("default", k.ID); !ok || now.State(time.Now()) != store.KeyValid ||
				now.Owner != admin.User {
				t.Errorf("the key is %+v", now)
			}
		})
	}
}

// Other changes of a key keep the user who disabled it.
func TestDisabledBy(t *testing.T) {
	g, kv, admin, member := newOvertaken(t)
	k := wantAs[manage.CreatedKey](g, member, 201, "POST", "/keys", `{"name":"laptop"}`)
	wantAs[manage.Key](g, member, 200, "POST", "/keys/laptop/disable", "{}")
	wantAs[manage.Key](g, admin, 200, "PATCH", "/keys/laptop", `{"note":"of the laptop"}`)
	if k := wantAs[manage.Key](g, member, 200, "POST", "/keys/laptop/enable", "{}"); k.DisabledBy != nil ||
		k.State != store.KeyValid {
		t.Errorf("enabled by its owner, who has disabled it: %+v", k)
	}
	wantAs[manage.Key](g, member, 200, "POST", "/keys/laptop/disable", "{}")
	if k := wantAs[manage.Key](g, admin, 200, "POST", "/keys/laptop/disable", "{}"); k.DisabledBy.Name != "ann" {
		t.Errorf("disabled again by an admin: %+v", k)
	}
	g.refused(member, http.StatusForbidden, "POST", "/keys/laptop/enable", "{}", "")

	// A record need not name the user who disabled the key.
	path := "keys/default/" + k.ID
	item, err := kv.Get(t.Context(), path)
	must(t, err)
	var record map[string]any
	must(t, json.Unmarshal(item.Value, &record))
	delete(record, "disabled_by")
	value, err := json.Marshal(record)
	must(t, err)
	must(t, errOf(kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(path, value)}})))
	a := g.doAs(member, "POST", "/keys/laptop/enable", "{}")
	if a.Code != http.StatusForbidden || !strings.Contains(a.Body.String(), "ask an admin") {
		t.Errorf("enabled by its owner: %d %s", a.Code, a.Body)
	}
	if k := wantAs[manage.Key](g, admin, 200, "POST", "/keys/laptop/enable", "{}"); k.State != store.KeyValid {
		t.Errorf("enabled by an admin: %+v", k)
	}
}
