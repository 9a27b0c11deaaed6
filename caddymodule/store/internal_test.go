package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// When a commit fails because of the disk, the content of the file is unknown. The store reads it
// again.
func TestFailedCommit(t *testing.T) {
	t.Parallel()
	diskFull := errors.New("disk full")
	for name, commit := range map[string]func(*bolt.Tx) error{
		"nothing written": func(tx *bolt.Tx) error { return errors.Join(diskFull, tx.Rollback()) },
		"all written":     func(tx *bolt.Tx) error { return errors.Join(diskFull, tx.Commit()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kv, err := OpenBolt(filepath.Join(t.TempDir(), "gateway.db"), BoltOptions{})
			must(t, err)
			b := kv.(*boltKV)
			s, err := New(kv, Options{})
			must(t, err)
			defer s.Close()
			ctx := context.Background()
			setCommit(b, commit)
			if _, _, err := s.CreateKey(ctx, DefaultAccount, KeyFields{Name: "a", Scope: "*"}); !errors.Is(err, diskFull) {
				t.Errorf("creating a key: %v", err)
			}
			setCommit(b, (*bolt.Tx).Commit)
			if _, _, err := s.CreateKey(ctx, DefaultAccount, KeyFields{Name: "b", Scope: "*"}); err != nil {
				t.Fatal(err)
			}
			snap, err := Range(ctx, kv, Prefix(keyKind.dir))
			must(t, err)
			if got := s.Stats(); got.Keys != len(snap.Items) || got.Revision != snap.Revision {
				t.Errorf("the view is %+v, the file has %d keys at revision %d", got, len(snap.Items), snap.Revision)
			}
		})
	}
}

func setCommit(b *boltKV, f func(*bolt.Tx) error) {
	b.mu.Lock()
	b.commitTx = f
	b.mu.Unlock()
}

// Times of use whose write failed are written later.
func TestFailedFlush(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	kv, err := OpenBolt(path, BoltOptions{})
	must(t, err)
	s, err := New(kv, Options{})
	must(t, err)
	k, secret, err := s.CreateKey(t.Context(), DefaultAccount, KeyFields{Name: "a", Scope: "*"})
	must(t, err)
	live, _ := s.FindKey(secret)
	s.Touch(live.LiveKey)
	diskFull := errors.New("disk full")
	setCommit(kv.(*boltKV), func(tx *bolt.Tx) error { return errors.Join(diskFull, tx.Rollback()) })
	if err := s.flush(t.Context(), 0); !errors.Is(err, diskFull) {
		t.Errorf("flush: %v", err)
	}
	setCommit(kv.(*boltKV), (*bolt.Tx).Commit)
	must(t, s.Close())
	if kv, err = OpenBolt(path, BoltOptions{}); err != nil {
		t.Fatal(err)
	}
	defer kv.Close()
	if item, err := kv.Get(t.Context(), keyKind.usePath(recordKey{DefaultAccount, k.ID})); err != nil || !item.Exists() {
		t.Errorf("the use is lost: %v", err)
	}
}

// A write gives up after many conflicts.
func TestConflict(t *testing.T) {
	t.Parallel()
	kv, err := OpenBolt(filepath.Join(t.TempDir(), "gateway.db"), BoltOptions{})
	must(t, err)
	s, err := New(kv, Options{})
	must(t, err)
	defer s.Close()
	attempts := 0
	err = s.update(t.Context(), "trying", func(t *tx) error {
		attempts++
		t.If = append(t.If, Compare{Key: "x", ModRevision: 4711})
		return nil
	})
	if !errors.Is(err, ErrConflict) || attempts != maxAttempts {
		t.Errorf("after %d attempts: %v", attempts, err)
	}
}

// FuzzRecord calls all decoders with possible contents of a file: they never panic, records that they
// accept survive encoding, and no error contains the content.
func FuzzRecord(f *testing.F) {
	const key, con = "key_00000000000000000000000000", "con_00000000000000000000000000"
	hash := strings.Repeat("0a", 32)
	f.Add("accounts/default", []byte(`{"v":1,"id":"default","name":"default","created_at":"2026-01-02T03:04:05.006Z"}`))
	f.Add("keys/default/"+key, []byte(`{"v":1,"id":"`+key+
		`","account":"default","name":"x","scope":"*","created_at":"2026-01-02T03:04:05Z","last_used_at":null,`+
		`"revoked_at":null,"hash":"`+hash+`"}`))
	f.Add("connectors/default/"+con, []byte(`{"v":1,"id":"`+con+`","account":"default","name":"x","hash":"`+hash+`"}`))
	f.Add("connectors/default/"+con,
		[]byte(`{"v":1,"id":"`+con+`","account":"default","name":"x","hash":"`+hash+`","previous_hash":"`+hash+
			`","previous_until":"2026-01-02T03:04:05Z","rotated_at":"2026-01-02T03:04:05Z"}`))
	f.Add("connectors/default/"+con,
		[]byte(`{"v":1,"id":"`+con+`","account":"default","name":"x","hash":"`+hash+`","previous_hash":"`+hash+`"}`))
	f.Add("deployments/default/a/b", []byte(`{"v":1,"account":"default","name":"a/b","connectors":["x"],"model":"m"}`))
	f.Add("last_used/default/"+key, []byte(`{"v":1,"last_used_at":"2026-01-02T03:04:05Z"}`))
	const usr, ses = "usr_00000000000000000000000000", "ses_00000000000000000000000000"
	const lnk = "lnk_00000000000000000000000000"
	const mgt, pair = "mgt_00000000000000000000000000", "pair_00000000000000000000000000"
	const use = "use_00000000000000000000000000"
	f.Add("setups/default/"+use,
		[]byte(`{"v":1,"id":"`+use+`","account":"default","key":{"scope":"*"},"hash":"`+hash+`"}`))
	f.Add("users/default/"+usr, []byte(`{"v":1,"id":"`+usr+
		`","account":"default","name":"Ann","password_hash":"x","epoch":3}`))
	f.Add("identities/"+hash, []byte(`{"v":1,"hash":"`+hash+`","account":"default","user":"`+usr+`"}`))
	const grp = "grp_00000000000000000000000000"
	f.Add("groups/default/"+grp, []byte(`{"v":1,"id":"`+grp+`","account":"default","name":"x","scope":"*",`+
		`"members":["`+usr+`"],"by_claim":[{"user":"`+usr+`","as_of":"2026-01-02T03:04:05Z"}]}`))
	f.Add("former_users/default/"+usr, []byte(`{"v":1,"id":"`+usr+`","account":"default","name":"Ann"}`))
	f.Add(passkeyKind.path(usr, hashPasskey([]byte("x"))),
		[]byte(`{"v":1,"user":"`+usr+`","id":"eA==","name":"phone","credential":{"a":1}}`))
	f.Add("answers/"+usr+"/c", []byte(`{"v":1,"user":"`+usr+`","challenge":"c","at":"2026-01-02T03:04:05Z"}`))
	f.Add("sessions/"+usr+"/"+ses,
		[]byte(`{"v":1,"id":"`+ses+`","user":"`+usr+
			`","account":"default","seen_at":"2026-01-02T03:04:05Z","epoch":3,"hash":"`+hash+`"}`))
	f.Add("sessions_seen/"+usr+"/"+ses, []byte(`{"v":1,"last_used_at":"2026-01-02T03:04:05Z"}`))
	f.Add("links/default/"+lnk, []byte(`{"v":1,"id":"`+lnk+`","account":"default","kind":"setup","hash":"`+hash+`"}`))
	f.Add("tokens/default/"+mgt, []byte(`{"v":1,"id":"`+mgt+`","account":"default","user":"`+usr+`","hash":"`+hash+`"}`))
	f.Add("pairings/default/"+pair,
		[]byte(`{"v":1,"id":"`+pair+`","account":"default","state":"pending","device":{"hostname":"x"},"code_hash":"`+hash+
			`","device_hash":"`+hash+`"}`))
	f.Add("usage/default/2026-01-02", []byte(`{"v":1,"account":"default","day":"2026-01-02","requests":1}`))
	f.Add("secrets/x", []byte(`{"v":1,"value":"AAEC"}`))
	f.Add("accounts/x", []byte(`{"v":2}`))
	f.Add("keys/x", []byte(`null`))
	f.Fuzz(func(t *testing.T, path string, value []byte) {
		d := new(view).draft(time.UnixMilli(0))
		item := Item{Key: path, Value: value, ModRevision: 1}
		if err := d.apply(Event{Item: item}); err != nil {
			if !errors.Is(err, ErrSchema) {
				t.Errorf("error %v", err)
			}
			if n := d.size(); n != 0 {
				t.Error("a damaged record is in the view")
			}
		}
		again(t, item, accountKind)
		again(t, item, keyKind)
		again(t, item, connectorKind)
		again(t, item, deploymentKind)
		again(t, item, calibrationKind)
		again(t, item, userKind)
		again(t, item, identityKind)
		again(t, item, passkeyKind)
		again(t, item, sessionKind)
		again(t, item, linkKind)
		again(t, item, tokenKind)
		again(t, item, pairingKind)
		again(t, item, setupKind)
		again(t, item, leftoverKind)
		again(t, item, formerKind)
		again(t, item, groupKind)
		again(t, item, edgeKind)
		again(t, item, reportKind)
	})
}

// A view drops each record that a later read of the KV does not find.
func TestViewMissesNothing(t *testing.T) {
	t.Parallel()
	kv, err := OpenBolt(filepath.Join(t.TempDir(), "gateway.db"), BoltOptions{})
	must(t, err)
	s, err := New(kv, Options{})
	must(t, err)
	defer s.Close()
	ctx := t.Context()
	u, err := s.CreateUser(ctx, DefaultAccount, "Ann", "", RoleAdmin)
	_, _, sessionErr := s.CreateSession(ctx, u.ID, "", "", "")
	_, _, linkErr := s.CreateLink(ctx, Link{Kind: LinkInvitation, Account: DefaultAccount}, time.Hour)
	_, _, tokenErr := s.CreateToken(ctx, Token{Account: DefaultAccount, User: u.ID, Name: "x", Rights: AllRights})
	_, _, pairingErr := s.CreatePairing(ctx, DefaultAccount, "")
	_, _, keyErr := s.CreateKey(ctx, DefaultAccount, KeyFields{Name: "x", Scope: "*"})
	_, _, setupErr := s.CreateSetup(ctx, DefaultAccount, KeyFields{Name: "x", Scope: "*"})
	c, _, connectorErr := s.CreateConnector(ctx, DefaultAccount, "x")
	d, deploymentErr := s.SetDeployment(ctx, Deployment{Account: DefaultAccount, Name: "x", Connectors: []string{c.ID}})
	passkeyErr := s.AddPasskey(ctx, u.ID, "c", Passkey{ID: []byte("x"), Name: "x", Credential: []byte("1")})
	calibrationErr := s.SaveCalibration(ctx, Calibration{Account: DefaultAccount, Deployment: "x", Since: d.UpdatedAt})
	_, accountErr := s.CreateAccount(ctx, "x")
	leftoverErr := s.RemoveAccount(ctx, "x")
	edgeErr := s.AddEdge(ctx, Edge{Name: "a"})
	_, reportErr := s.SaveReport(ctx, Edge{Name: "a"}, Report{}, 0)
	s.SetSignInPolicy(SignInPolicy{Issuers: []string{"https://i"}})
	_, identityErr := s.LinkIdentity(ctx, DefaultAccount, u.ID, "https://i", "ann")
	former, formerErr := s.CreateUser(ctx, DefaultAccount, "Bob", "", RoleMember)
	_, removeErr := s.RemoveUser(ctx, DefaultAccount, former.ID)
	_, groupErr := s.CreateGroup(ctx, DefaultAccount, GroupFields{Name: "x", Scope: "*"})
	caughtUp := s.CatchUp(ctx)
	err = errors.Join(err, identityErr, formerErr, removeErr, edgeErr, reportErr, caughtUp, sessionErr, linkErr, tokenErr,
		pairingErr, keyErr, setupErr, connectorErr, groupErr,
		deploymentErr, passkeyErr, calibrationErr, accountErr, leftoverErr)
	must(t, err)
	v := s.view.Load()
	read := v.draft(time.Now())
	for _, kind := range kinds {
		before := read.size()
		if kind.dropMissing(read, &v.records); read.size() == before {
			t.Errorf("%T: nothing was dropped", kind)
		}
	}
	if n := read.size(); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

// size counts the entries of all tables of records.
func (d *draft) size() (n int) {
	for _, field := range reflect.ValueOf(d.records).Fields() {
		if field.Kind() != reflect.Struct || !field.FieldByName("byOwner").IsValid() {
			continue
		}
		for _, name := range []string{"byOwner", "byID", "byHash"} {
			n += int(field.FieldByName(name).FieldByName("size").Int())
		}
	}
	return n
}

// again decodes and encodes an item twice: both encodings are the same.
func again[R any, P interface {
	*R
	record
}](t *testing.T, item Item, k *kind[R, P]) {
	t.Helper()
	r, err := k.decode(item)
	if err != nil {
		return
	}
	first, err := json.Marshal(r)
	if err != nil {
		t.Fatalf("encoding %+v: %v", r, err)
	}
	item.Value = first
	if r, err = k.decode(item); err != nil {
		t.Fatalf("decoding %s: %v", first, err)
	}
	if second, err := json.Marshal(r); err != nil || !bytes.Equal(first, second) {
		t.Errorf("%s became %s, %v", first, second, err)
	}
}

// Ids are UUIDs of version 7, which sort in the order of their creation, even within a millisecond.
func TestNewID(t *testing.T) {
	t.Parallel()
	at, last := time.UnixMilli(1_700_000_000_000), ""
	for range 4096 {
		id := newID(prefixKey, at)
		raw, err := idEncoding.DecodeString(strings.TrimPrefix(id, prefixKey))
		if err != nil || raw[6]>>4 != 7 || raw[8]>>6 != 2 || !checkID(prefixKey, id) || checkID(prefixConnector, id) ||
			id <= last {
			t.Fatalf("%s after %s: %x, %v", id, last, raw, err)
		}
		last, at = id, at.Add(time.Microsecond)
	}
}
