package store_test

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// Of admins who demote and remove each other concurrently, one remains.
func TestOneAdminStays(t *testing.T) {
	t.Parallel()
	s := newStore(t, storetest.OpenBolt(t, tempStore(t)))
	for round := range 20 {
		admins := make([]store.User, 4)
		for i := range admins {
			u, err := s.CreateUser(t.Context(), account, fmt.Sprintf("admin-%d-%d", round, i), "", store.RoleAdmin)
			must(t, err)
			admins[i] = u
		}
		for _, u := range s.Users(account) { // of the last round
			if !slices.Contains(admins, u) {
				must(t, errOf(s.RemoveUser(t.Context(), account, u.ID)))
			}
		}
		var all sync.WaitGroup
		for i, u := range admins {
			all.Go(func() {
				if i%2 == 0 {
					_, _ = s.SetUserRole(t.Context(), account, u.ID, store.RoleMember)
				} else {
					_, _ = s.RemoveUser(t.Context(), account, u.ID)
				}
			})
		}
		all.Wait()
		left := slices.DeleteFunc(s.Users(account), func(u store.User) bool { return u.Role != store.RoleAdmin })
		if len(left) != 1 {
			t.Fatalf("%d admins are left: %+v", len(left), s.Users(account))
		}
	}
}

// A user keeps the role. A user whose record has none is an admin.
func TestRolesAreKept(t *testing.T) {
	t.Parallel()
	kv := share(storetest.OpenBolt(t, tempStore(t)))
	s := newStore(t, kv)
	ann, err := s.CreateUser(t.Context(), account, "ann", "", "")
	must(t, err)
	vera, err := s.CreateUser(t.Context(), account, "vera", "", store.RoleViewer)
	must(t, err)
	must(t, errOf(s.SetUserRole(t.Context(), account, vera.Name, store.RoleMember)))
	path := "users/" + account + "/" + ann.ID
	item, err := kv.Get(t.Context(), path)
	must(t, err)
	older := bytes.Replace(item.Value, []byte(`,"role":"admin"`), nil, 1)
	if bytes.Equal(older, item.Value) {
		t.Fatalf("the record is %s", item.Value)
	}
	must(t, errOf(kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(path, older)}})))
	again := newStore(t, kv)
	for name, want := range map[string]store.Role{"ann": store.RoleAdmin, "vera": store.RoleMember} {
		if u, ok := again.FindUser(name); !ok || u.Role != want {
			t.Errorf("%s: %+v", name, u)
		}
	}
	wantError(t, errOf(s.CreateUser(t.Context(), account, "eve", "", "boss")), store.ErrInvalid, "unknown role")
	_, err = s.SetUserRole(t.Context(), account, "nobody", store.RoleViewer)
	wantError(t, err, store.ErrNotFound, "not found")
}
