package storetest

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// RunStores runs the tests that two and three stores of one KV must pass, like those of several
// gateways. The KV is not external.
func RunStores(t *testing.T, b Backend) {
	for name, f := range map[string]func(*storesTest){
		"written here, read there":     testReadThere,
		"conflicting writes":           testConflicts,
		"one identity at all":          testIdentity,
		"removed while used":           testRemovedWhileUsed,
		"revoked here, cut off there":  testRevokedThere,
		"writes without a change":      testUnchanged,
		"limits":                       testLimitsOfAll,
		"sweeps by several":            testSweeps,
		"account removed and created":  testAccountAgain,
		"watcher fails":                testWatcherFails,
		"writes while a watcher fails": testWriteUnconfirmed,
		"joins late":                   testJoinsLate,
	} {
		for n := 2; n <= 3; n++ {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				t.Parallel()
				test := func(t *testing.T) {
					s := &storesTest{T: t, kv: b.Open(t)}
					t.Cleanup(func() { closeAny(t, s.kv) })
					for range n {
						s.join()
					}
					f(s)
					s.same()
				}
				synctest.Test(t, test)
			})
		}
	}
}

// storesTest is one test with several stores of one KV.
type storesTest struct {
	*testing.T
	kv     store.KV
	later  atomic.Int64 // how much the clock of the stores is ahead, in nanoseconds
	mu     sync.Mutex
	stores []*store.Store
	shared []*Shared // of the stores
}

const account = store.DefaultAccount

// join opens another store.
func (t *storesTest) join() *store.Store {
	t.Helper()
	kv := Share(t.kv)
	s, err := store.New(kv, store.Options{Now: func() time.Time { return time.Now().Add(time.Duration(t.later.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAny(t, s) })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stores, t.shared = append(t.stores, s), append(t.shared, kv)
	return s
}

// twoStores returns the first store and the last one.
func (t *storesTest) twoStores() (here, there *store.Store) {
	return t.stores[0], t.stores[len(t.stores)-1]
}

// eventually waits until f, which depends on the watcher of a store, returns true.
func (t *storesTest) eventually(what string, f func() bool) {
	t.Helper()
	wait.Until(t, what, f)
}

// everywhere is eventually for each store.
func (t *storesTest) everywhere(what string, f func(s *store.Store) bool) {
	t.Helper()
	for i, s := range t.stores {
		t.eventually(fmt.Sprintf("%s, in store %d", what, i), func() bool { return f(s) })
	}
}

// same waits until all stores show the same records.
func (t *storesTest) same() {
	t.Helper()
	t.everywhere("the state of the first store", func(s *store.Store) bool { return dump(s) == dump(t.stores[0]) })
}

// dump describes all records of a store, without times of use.
func dump(s *store.Store) string {
	var all []any
	for _, a := range s.Accounts() {
		all = append(all, a, s.Deployments(a.ID), s.Links(a.ID))
		for _, k := range s.Keys(a.ID) {
			all = append(all, k.ID, k.Name, k.Scope, k.RevokedAt)
		}
		for _, c := range s.Connectors(a.ID) {
			all = append(all, c.ID, c.Name, c.Pairing, c.RotatedAt, c.PreviousUntil)
		}
		for _, u := range s.Users(a.ID) {
			all = append(all, u, s.PasswordHash(u.ID), s.Passkeys(u.ID))
			for _, session := range s.Sessions(u.ID) {
				all = append(all, session.ID, session.ConfirmedAt)
			}
		}
		for _, token := range s.Tokens(a.ID) {
			all = append(all, token.ID, token.Rights)
		}
		for _, p := range s.Pairings(a.ID) {
			all = append(all, p.ID, p.State)
		}
	}
	return fmt.Sprint(all...)
}

func (t *storesTest) ok(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// second returns the second of two results.
func second[T any](_ T, err error) error { return err }

func (t *storesTest) key(s *store.Store) (store.Key, string) {
	t.Helper()
	k, secret, err := s.CreateKey(t.Context(), account, store.KeyFields{Name: rand.Text(), Scope: "*"})
	t.ok(err)
	return k, secret
}

func (t *storesTest) connector(s *store.Store, name string) store.Connector {
	t.Helper()
	c, _, err := s.CreateConnector(t.Context(), account, name)
	t.ok(err)
	return c
}

func (t *storesTest) session(s *store.Store, u store.User) (store.Session, string) {
	t.Helper()
	session, secret, err := s.CreateSession(t.Context(), u.ID, "password", "192.0.2.1", "test")
	t.ok(err)
	return session, secret
}

// all runs f with all stores concurrently.
func (t *storesTest) all(f func(i int, s *store.Store)) {
	var wg sync.WaitGroup
	for i, s := range t.stores {
		wg.Go(func() { f(i, s) })
	}
	wg.Wait()
}

// paths returns the keys of the KV with a prefix.
func (t *storesTest) paths(prefix string) (out []string) {
	t.Helper()
	snap, err := store.Range(t.Context(), t.kv, store.Prefix(prefix))
	t.ok(err)
	for _, item := range snap.Items {
		out = append(out, item.Key)
	}
	return out
}

// testJoinsLate opens a store while others write.
func testJoinsLate(t *storesTest) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t.all(func(i int, s *store.Store) {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				k, _, err := s.CreateKey(t.Context(),
					account, store.KeyFields{Name: strings.Repeat("k", i+1) + rand.Text(), Scope: "*"})
				if err == nil && n%2 == 0 {
					_, err = s.RevokeKey(t.Context(), account, k.ID)
				}
				if err == nil && n%3 == 0 {
					_, err = s.RemoveKey(t.Context(), account, k.ID)
				}
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	}()
	time.Sleep(20 * time.Millisecond)
	late := t.join()
	time.Sleep(20 * time.Millisecond)
	close(stop)
	<-done
	if len(t.stores[0].Keys(account)) == 0 {
		t.Error("the others wrote nothing")
	}
	t.everywhere("as the late one", func(s *store.Store) bool { return dump(s) == dump(late) })
	_, secret := t.key(late)
	t.everywhere("a key of the late one", func(s *store.Store) bool { _, ok := s.FindKey(secret); return ok })
}
