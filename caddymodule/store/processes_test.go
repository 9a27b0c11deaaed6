package store_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

func share(kv store.KV) *storetest.Shared { return storetest.Share(kv) }

func newStore(t *testing.T, kv store.KV) *store.Store {
	t.Helper()
	s, err := store.New(kv, store.Options{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// A record of a newer program is an error at the start. If it is written later, the record counts as
// removed.
func TestNewerRecord(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	s := newStore(t, share(kv))
	k, secret := mustKey(t, s, "*")
	live, _ := s.FindKey(secret)
	cut := make(chan struct{})
	live.Begin(netip.Addr{}, func(store.Refusal) { close(cut) })
	path := "keys/" + account + "/" + k.ID
	item, err := kv.Get(t.Context(), path)
	if err != nil || !item.Exists() {
		t.Fatalf("%+v, %v", item, err)
	}
	newer := strings.Replace(string(item.Value), `"v":1`, `"v":2`, 1)
	must(t, errOf(kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(path, []byte(newer))}})))
	<-cut
	if _, ok := s.FindKey(secret); ok || live.Key().RevokedAt == nil || len(s.Keys(account)) != 0 {
		t.Error("a key that cannot be understood opens something")
	}
	_, err = store.New(share(kv), store.Options{})
	wantError(t, err, store.ErrSchema, path, "has version 2", "newer Postern")
	// It is readable again.
	must(t, errOf(kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(path, item.Value)}})))
	wait.Until(t, "the key is valid again", func() bool {
		k, ok := s.FindKey(secret)
		return ok && k.Key().RevokedAt == nil
	})
}

func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	const id = "00000000000000000000000000"
	const lnk, mgt, pair = "lnk_" + id, "mgt_" + id, "pair_" + id
	hash := strings.Repeat("0a", 32)
	for path, value := range map[string]string{
		"accounts/x":              `{"v":1,"id":"y"}`,
		"keys/default/key_x":      `{"v":1,"id":"key_x"}`,
		"connectors/default/x":    `nonsense`,
		"deployments/default/a":   `{}`,
		"deployments/default/old": `{"v":1,"account":"default","name":"old","connector":"con_x"}`,
		"deployments/default/odd": `{"v":1,"account":"default","name":"odd","connectors":["con_x"],` +
			`"options":{"remote_media":"https"}}`,
		"last_used/default/x":           `{"v":1,"last_used_at":7}`,
		"deployments/default/not valid": `{"v":1,"account":"default","name":"not valid"}`,
		"users/default/usr_x":           `{"v":1,"id":"usr_x","account":"default","name":"x"}`,
		"passkeys/usr_x/00":             `{"v":1,"user":"usr_x","id":"eA=="}`,
		"sessions/usr_x/ses_x":          `{"v":1,"id":"ses_x","user":"usr_x"}`,
		"sessions_seen/usr_x/ses_x":     `{"v":1,"last_used_at":""}`,
		"links/default/" + lnk:          `{"v":1,"id":"` + lnk + `","account":"other","hash":"` + hash + `"}`,
		"tokens/default/" + mgt:         `{"v":1,"id":"` + mgt + `","account":"default"}`,
		"pairings/default/" + pair: `{"v":1,"id":"` + pair + `","account":"default","state":"pending","code_hash":"` +
			hash + `"}`,
		"pairings/other/" + pair: `{"v":1,"id":"` + pair + `","account":"other","state":"odd","code_hash":"` + hash + `"}`,
	} {
		kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
		must(t, errOf(kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(path, []byte(value))}})))
		wantError(t, errOf(store.New(share(kv), store.Options{})), store.ErrSchema, path, "is damaged")
	}
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	must(t, errOf(kv.Txn(t.Context(),
		store.Txn{Then: []store.Op{store.Put("robots/default/x", []byte("a newer kind"))}})))
	newStore(t, kv)
}

// Close ends all goroutines, which the bubble checks, also while the watch is retried.
func TestCloseEndsGoroutines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		kv, err := store.OpenBolt(path, store.BoltOptions{})
		must(t, err)
		deaf := share(kv)
		s, err := store.New(deaf, store.Options{})
		must(t, err)
		deaf.CutOff(errors.New("connection lost"), func() {})
		synctest.Wait()
		must(t, errors.Join(s.Close(), kv.Close()))
	})
}
