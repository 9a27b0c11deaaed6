package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// The operations of one user displace none of another user from the list.
func TestAuditListOfManyUsers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shared.db")
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := openLater(t, share(storetest.OpenBolt(t, path)), 0, store.Options{Edge: "a"})
		defer func() { _ = s.Close() }()
		for user, n := range map[string]int{"usr_admin": 300, "usr_member": 1500} {
			for i := range n {
				time.Sleep(time.Millisecond)
				must(t, s.AddOperation(ctx, "default",
					store.Operation{Kind: "key.update", Name: fmt.Sprint(i), User: user, By: user}))
			}
		}
		list, err := s.Operations(ctx, "default")
		entries, newest := map[string]int{}, map[string]string{}
		for _, o := range list {
			if entries[o.User]++; newest[o.User] == "" {
				newest[o.User] = o.Name
			}
		}
		if err != nil || entries["usr_admin"] != 300 || entries["usr_member"] != 700 || newest["usr_member"] != "1499" {
			t.Errorf("%v, %v entries, the newest of each %v", err, entries, newest)
		}
	})
}

// An audit log keeps 1,000 operations and 90 days, of all gateways. It ends with its account.
func TestAuditList(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		kv := share(storetest.OpenBolt(t, filepath.Join(dir, "shared.db")))
		open := func(name string, days int) *store.Store {
			return openLater(t, kv, days, store.Options{Edge: name, Own: storetest.OpenBolt(t, filepath.Join(dir, name))})
		}
		a, b := open("a", 0), open("b", 0)
		add := func(s *store.Store, account, name string) {
			t.Helper()
			time.Sleep(time.Millisecond)
			must(t, s.AddOperation(ctx, account,
				store.Operation{Kind: "key.create", Name: name, By: "anna"}))
		}
		want := func(s *store.Store, account string, n int, newest string) {
			t.Helper()
			list, err := s.Operations(ctx, account)
			if err != nil || len(list) != n || n > 0 && (list[0].Name != newest || list[0].ID == "") {
				t.Errorf("%d operations of %q, want %d: %v", len(list), account, n, err)
			}
		}
		must(t, errOf(a.CreateAccount(ctx, "team")))
		add(a, "team", "first")
		add(a, "", "gateway")
		for i := range 600 {
			add(a, "default", fmt.Sprint(i))
			add(b, "default", fmt.Sprint(i))
		}
		want(a, "default", 1000, "599")
		want(b, "team", 1, "first")
		want(b, "", 1, "gateway")
		stored := 0
		if _, err := kv.Each(ctx, store.Prefix("x/audit/default/"),
			func(store.Item) error { stored++; return nil }); err != nil || stored > 1100 {
			t.Errorf("%d entries are stored: %v", stored, err)
		}
		must(t, errOf(a.CreateAccount(ctx, "gone")))
		add(a, "gone", "x")
		must(t, a.RemoveAccount(ctx, "gone"))
		want(a, "gone", 0, "")
		for _, s := range []*store.Store{a, b} {
			must(t, s.Close())
		}

		c := open("c", 91)
		defer func() { _ = c.Close() }()
		want(c, "team", 0, "")
		add(c, "default", "later")
		synctest.Wait() // the sweep at the start
		stored = 0
		if _, err := kv.Each(ctx, store.Prefix("x/audit/"), func(store.Item) error { stored++; return nil }); err != nil ||
			stored != 1 {
			t.Errorf("%d entries are stored after 91 days: %v", stored, err)
		}
		want(c, "default", 1, "later")
	})
}
