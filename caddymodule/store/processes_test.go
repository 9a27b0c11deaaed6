package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// sharedKV is a KV seen from one of several processes: closing it leaves it
// to the others, and its watchers can be cut off.
type sharedKV struct {
	store.KV
	mu    sync.Mutex
	cause error         // what cut-off watchers fail with
	cut   chan struct{} // closed: watchers fail
}

func share(kv store.KV) *sharedKV { return &sharedKV{KV: kv, cut: make(chan struct{})} }

func (s *sharedKV) Close() error { return nil }

// Watch gives a watcher that ends when cutOff is called. It goes on to
// deliver nothing from then on.
func (s *sharedKV) Watch(ctx context.Context, span store.Span, from int64) (store.Watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.KV.Watch(ctx, span, from)
	return &sharedWatcher{Watcher: w, s: s, cut: s.cut}, err
}

// cutOff makes the watchers of now deaf, runs f, and then fails them.
func (s *sharedKV) cutOff(cause error, f func()) {
	s.mu.Lock()
	cut := s.cut
	s.cut, s.cause = make(chan struct{}), cause
	s.mu.Unlock()
	f()
	close(cut)
}

type sharedWatcher struct {
	store.Watcher
	s   *sharedKV
	cut chan struct{}
}

func (w *sharedWatcher) Next(ctx context.Context) (store.Batch, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.cut:
			cancel()
		case <-ctx.Done():
		}
	}()
	batch, err := w.Watcher.Next(ctx)
	w.s.mu.Lock()
	deaf := w.s.cut != w.cut
	w.s.mu.Unlock()
	if !deaf {
		return batch, err
	}
	<-w.cut
	return store.Batch{}, w.s.cause
}

func newStore(t *testing.T, kv store.KV) *store.Store {
	t.Helper()
	s, err := store.New(kv, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// eventually waits for what another process has to learn from its watch.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for range 2000 {
		if f() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("never: %s", what)
}

func sameState(a, b *store.Store) bool {
	dump := func(s *store.Store) string {
		var people []any
		for _, u := range s.Users(account) {
			people = append(people, u, s.PasswordHash(u.ID), s.Sessions(u.ID), s.Passkeys(u.ID))
		}
		for _, p := range s.Pairings(account) {
			people = append(people, p.ID, p.State)
		}
		return fmt.Sprintf("%+v %+v %+v", s.Accounts(), s.Connectors(account), s.Deployments(account)) +
			fmt.Sprintf("%+v %+v %+v", people, s.Links(account), s.Tokens(account)) +
			fmt.Sprint(slices.Collect(func(yield func(string) bool) {
				for _, k := range s.Keys(account) {
					if !yield(fmt.Sprint(k.ID, k.Scope, k.RevokedAt)) {
						return
					}
				}
			}))
	}
	return dump(a) == dump(b)
}

// Two stores over one KV are two gateways: what one writes the other obeys.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	a, b := newStore(t, share(kv)), newStore(t, share(kv))
	k, secret := mustKey(t, a, "*")
	eventually(t, "b knows the key of a", func() bool { _, ok := b.FindKey(secret); return ok })
	live, _ := b.FindKey(secret)
	cut := make(chan struct{})
	live.OnRevoke(func() { close(cut) })
	if _, err := a.RevokeKey(t.Context(), account, k.ID); err != nil {
		t.Fatal(err)
	}
	// The key is revoked already, and still this waits for b's own view.
	if _, err := b.RevokeKey(t.Context(), account, k.ID); err != nil || !live.Revoked() {
		t.Errorf("revoking in b: %v", err)
	}
	<-cut

	secretOf := func(s *store.Store, value string) string {
		got, err := s.Secret(t.Context(), "x", func() ([]byte, error) { return []byte(value), nil })
		if err != nil {
			t.Error(err)
		}
		return string(got)
	}
	if secretOf(a, "from a") != "from a" || secretOf(b, "from b") != "from a" {
		t.Error("the two have different secrets")
	}
	for i := range 10 {
		c, _, err := a.CreateConnector(t.Context(), account, fmt.Sprint("c", i))
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = b.CreateConnector(t.Context(), account, c.Name)
		wantError(t, err, store.ErrExists)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := a.SetDeployment(t.Context(), store.Deployment{Account: account, Name: c.Name, Connectors: []string{c.ID}})
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, err := b.RemoveConnector(t.Context(), account, c.ID); err != nil && !errors.Is(err, store.ErrInUse) {
				t.Error(err)
			}
		})
		wg.Wait()
	}
	eventually(t, "both are the same", func() bool { return sameState(a, b) })
	for _, d := range a.Deployments(account) {
		if _, ok := a.Connector(d.Connectors[0]); !ok {
			t.Errorf("deployment %s points to nothing", d.Name)
		}
	}
}

// What one does with users and their sessions the other obeys too.
func TestTwoProcessesPeople(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	a, b := newStore(t, share(kv)), newStore(t, share(kv))
	u := mustUser(t, a, "Ann")
	eventually(t, "b knows the user of a", func() bool { return b.UserCount() == 1 })
	session, sessionSecret := mustSession(t, a, u)
	_, tokenSecret, err := b.CreateToken(t.Context(), store.Token{Account: account, User: u.ID, Name: "ci", Rights: store.AllRights})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "both know session and token", func() bool {
		_, inB := b.FindSession(sessionSecret)
		_, inA := a.FindToken(tokenSecret)
		return inA && inB
	})
	if err := b.RemoveSession(t.Context(), u.ID, session.ID); err != nil {
		t.Error(err)
	}
	eventually(t, "the session has ended in a", func() bool { _, ok := a.FindSession(sessionSecret); return !ok })
	_, sessionSecret = mustSession(t, a, u)
	if err := b.SetPassword(t.Context(), u.ID, b.PasswordHash(u.ID), "new", ""); err != nil {
		t.Error(err)
	}
	eventually(t, "the new password has ended it in a", func() bool { _, ok := a.FindSession(sessionSecret); return !ok })
	eventually(t, "both are the same", func() bool { return sameState(a, b) })
}

// A store whose watch fails, or fell behind, reads everything again: what was
// revoked, removed or made meanwhile is as if it had heard of it.
func TestWatchFails(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{"compacted": store.ErrCompacted, "broken": errors.New("connection lost")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "gateway.db")
			kv := storetest.OpenBolt(t, path)
			deaf := share(kv)
			a, b := newStore(t, share(kv)), newStore(t, deaf)
			k, secret := mustKey(t, b, "*")
			live, _ := b.FindKey(secret)
			cut := make(chan struct{})
			live.OnRevoke(func() { close(cut) })
			c, _, _ := b.CreateConnector(t.Context(), account, "one")
			gone, _, _ := b.CreateConnector(t.Context(), account, "gone")
			b.SetDeployment(t.Context(), store.Deployment{Account: account, Name: "a", Connectors: []string{c.ID}})
			ann, bob := mustUser(t, b, "Ann"), mustUser(t, b, "bob")
			_, annSecret := mustSession(t, b, ann)
			_, bobSecret := mustSession(t, b, bob)
			_, linkSecret := mustLink(t, b, store.LinkInvitation, "")
			_, code := mustPairing(t, b)
			eventually(t, "both are the same at first", func() bool { return sameState(a, b) })
			deaf.cutOff(cause, func() {
				changePeople(t, a, ann, bob, linkSecret, code)
				if _, err := a.RevokeKey(t.Context(), account, k.ID); err != nil {
					t.Error(err)
				}
				mustKey(t, a, "qwen*")
				a.RemoveDeployment(t.Context(), account, "a")
				a.RemoveConnector(t.Context(), account, gone.ID)
				if live.Revoked() || sameState(a, b) {
					t.Error("the store is not cut off: the test shows nothing")
				}
				// A write of its own cannot return until the view has it.
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				_, _, err := b.CreateKey(ctx, account, "x", "*")
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a write that does not take effect: %v", err)
				}
			})
			<-cut
			eventually(t, "both are the same", func() bool { return sameState(a, b) })
			_, annOK := b.FindSession(annSecret)
			_, bobOK := b.FindSession(bobSecret)
			if _, err := b.FindLink(linkSecret); err == nil || annOK || bobOK || len(b.Sessions(bob.ID)) != 0 {
				t.Error("what has ended meanwhile is valid")
			}
			if again, ok := b.FindKey(secret); !ok || again != live {
				t.Error("the key has another LiveKey")
			}
			mustKey(t, b, "*") // and goes on
		})
	}
}

func changePeople(t *testing.T, s *store.Store, removed, changed store.User, link, code string) {
	t.Helper()
	_, removeErr := s.RemoveUser(t.Context(), account, removed.ID)
	passwordErr := s.SetPassword(t.Context(), changed.ID, s.PasswordHash(changed.ID), "new", "")
	_, redeemErr := s.RedeemLink(t.Context(), link, "carol", "hash", store.Ending{})
	_, denyErr := s.DenyPairing(t.Context(), account, code, changed.ID)
	if err := errors.Join(removeErr, passwordErr, redeemErr, denyErr); err != nil {
		t.Error(err)
	}
}

// A newer program has written a record: that is an error at the start. When
// it comes later, the record counts as removed.
func TestNewerRecord(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	s := newStore(t, share(kv))
	k, secret := mustKey(t, s, "*")
	live, _ := s.FindKey(secret)
	cut := make(chan struct{})
	live.OnRevoke(func() { close(cut) })
	path := "keys/" + account + "/" + k.ID
	item, err := kv.Get(t.Context(), path)
	if err != nil || !item.Exists() {
		t.Fatalf("%+v, %v", item, err)
	}
	newer := strings.Replace(string(item.Value), `"v":1`, `"v":2`, 1)
	if _, err := kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(path, []byte(newer))}}); err != nil {
		t.Fatal(err)
	}
	<-cut
	if _, ok := s.FindKey(secret); ok || !live.Revoked() || len(s.Keys(account)) != 0 {
		t.Error("a key that cannot be understood opens something")
	}
	_, err = store.New(share(kv), store.Options{})
	wantError(t, err, store.ErrSchema, path, "has version 2", "newer Postern")
	// It can be understood again.
	if _, err := kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(path, item.Value)}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the key is valid again", func() bool { k, ok := s.FindKey(secret); return ok && !k.Revoked() })
}

func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	const id = "00000000000000000000000000"
	const lnk, mgt, pair = "lnk_" + id, "mgt_" + id, "pair_" + id
	hash := strings.Repeat("0a", 32)
	for path, value := range map[string]string{
		"accounts/x":                    `{"v":1,"id":"y"}`,
		"keys/default/key_x":            `{"v":1,"id":"key_x"}`,
		"connectors/default/x":          `nonsense`,
		"deployments/default/a":         `{}`,
		"deployments/default/old":       `{"v":1,"account":"default","name":"old","connector":"con_x"}`,
		"deployments/default/odd":       `{"v":1,"account":"default","name":"odd","connectors":["con_x"],"options":{"inline_system":"hoist"}}`,
		"last_used/default/x":           `{"v":1,"last_used_at":7}`,
		"deployments/default/not valid": `{"v":1,"account":"default","name":"not valid"}`,
		"users/default/usr_x":           `{"v":1,"id":"usr_x","account":"default","name":"x"}`,
		"passkeys/usr_x/00":             `{"v":1,"user":"usr_x","id":"eA=="}`,
		"sessions/usr_x/ses_x":          `{"v":1,"id":"ses_x","user":"usr_x"}`,
		"sessions_seen/usr_x/ses_x":     `{"v":1,"last_used_at":""}`,
		"links/default/" + lnk:          `{"v":1,"id":"` + lnk + `","account":"other","hash":"` + hash + `"}`,
		"tokens/default/" + mgt:         `{"v":1,"id":"` + mgt + `","account":"default"}`,
		"pairings/default/" + pair:      `{"v":1,"id":"` + pair + `","account":"default","state":"pending","code_hash":"` + hash + `"}`,
		"pairings/other/" + pair:        `{"v":1,"id":"` + pair + `","account":"other","state":"odd","code_hash":"` + hash + `"}`,
	} {
		kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
		if _, err := kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(path, []byte(value))}}); err != nil {
			t.Fatal(err)
		}
		_, err := store.New(share(kv), store.Options{})
		wantError(t, err, store.ErrSchema, path, "is damaged")
	}
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	if _, err := kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("robots/default/x", []byte("a newer kind"))}}); err != nil {
		t.Fatal(err)
	}
	newStore(t, kv)
}

// Close ends all goroutines, which the bubble would complain about, also while
// the watch is being tried again.
func TestCloseEndsGoroutines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		kv, err := store.OpenBolt(path, store.BoltOptions{})
		if err != nil {
			t.Fatal(err)
		}
		deaf := share(kv)
		s, err := store.New(deaf, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Lease(context.Background(), time.Hour); err != nil {
			t.Fatal(err)
		}
		deaf.cutOff(errors.New("connection lost"), func() {})
		synctest.Wait()
		if err := errors.Join(s.Close(), kv.Close()); err != nil {
			t.Fatal(err)
		}
	})
}
