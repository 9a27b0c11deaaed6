package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func TestPersonFields(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	create := func(f store.PersonFields) (store.Key, error) {
		k, _, err := s.CreateKey(t.Context(), account, store.KeyFields{
			Name: fmt.Sprint("key", len(s.Keys(account))), Scope: "*", PersonFields: f,
		})
		return k, err
	}
	for want, f := range map[string]store.PersonFields{
		"X-OpenWebUI-User-Email": {UserHeader: "a b"},
		"not the name":           {UserHeader: strings.Repeat("x", 1000)},
		"header Authorization":   {UserHeader: "authorization"},
		"header X-Api-Key":       {UserHeader: "x-API-key"},
		"header Content-Type":    {UserHeader: "content-type"},
		"header Cookie has":      {UserHeader: "Cookie"},
		"not both":               {UserHeader: "X-User", UserField: true},
		"tokens_per_month":       {UserField: true, PersonLimits: limits.UsageLimits{TokensPerMonth: 1}},
		"-1":                     {UserField: true, PersonLimits: limits.UsageLimits{Concurrency: -1}},
		"name the person":        {PersonLimits: limits.UsageLimits{Concurrency: 1}},
	} {
		if _, err := create(f); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for i := range 16 {
		k, err := create(store.PersonFields{UserHeader: " x-openwebui-user-email"})
		if err != nil || k.UserHeader != "X-Openwebui-User-Email" {
			t.Fatal(i, k.UserHeader, err)
		}
	}
	last, err := create(store.PersonFields{})
	must(t, err)
	set := func(k *store.Key) error { k.UserField = true; return nil }
	if _, err := s.EditKey(t.Context(), account, last.ID, set); !errors.Is(err, store.ErrLimit) {
		t.Errorf("the 17th key: %v", err)
	}
	if _, err := create(store.PersonFields{UserField: true}); !errors.Is(err, store.ErrLimit) {
		t.Errorf("the 17th key: %v", err)
	}
	_, err = s.RevokeKey(t.Context(), account, "key0")
	must(t, err)
	if _, err := s.EditKey(t.Context(), account, last.ID, set); err != nil {
		t.Errorf("after one was revoked: %v", err)
	}
}

// A key forgets a thousand people in 62 days, and keeps only hashes of their names.
func TestForgetIsBounded(t *testing.T) {
	t.Parallel()
	var days atomic.Int64
	now := func() time.Time { return time.Now().AddDate(0, 0, int(days.Load())) }
	kv := storetest.OpenBolt(t, tempStore(t))
	s, err := store.New(kv, store.Options{Now: now})
	must(t, err)
	defer s.Close()
	k, _, err := s.CreateKey(t.Context(), account, store.KeyFields{Name: "k", Scope: "*"})
	must(t, err)
	for _, name := range []string{"", store.OtherPeople, strings.Repeat("x", 1000)} {
		if _, err := s.ForgetPerson(t.Context(), account, "k", name); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%.10q: %v", name, err)
		}
	}
	today, path := now().UTC().Format(time.DateOnly), "keys/"+account+"/"+k.ID
	item, err := kv.Get(t.Context(), path)
	must(t, err)
	hashes := make(map[string]string)
	for i := range 999 {
		hashes[fmt.Sprintf("%064x", i)] = today
	}
	forgotten, err := json.Marshal(hashes)
	must(t, err)
	put := store.Put(path, bytes.Replace(item.Value, []byte("{"), fmt.Appendf(nil, `{"forgotten":%s,`, forgotten), 1))
	must(t, errOf(kv.Txn(t.Context(), store.Txn{Then: []store.Op{put}})))
	must(t, errOf(s.ForgetPerson(t.Context(), account, "k", "anna")))
	if _, err := s.ForgetPerson(t.Context(), account, "k", "bert"); !errors.Is(err, store.ErrLimit) {
		t.Errorf("one more: %v", err)
	}
	item, err = kv.Get(t.Context(), path)
	if err != nil || strings.Contains(string(item.Value), "anna") || len(item.Value) > 100_000 {
		t.Errorf("%d bytes, %v", len(item.Value), err)
	}
	if s.KeepsPerson(account, k.ID, "anna", today) || !s.KeepsPerson(account, k.ID, "bert", today) {
		t.Error("on the same day")
	}
	days.Store(61)
	if !s.KeepsPerson(account, k.ID, "bert", today) {
		t.Error("not kept for 62 days")
	}
	days.Store(62)
	if s.KeepsPerson(account, k.ID, "bert", today) {
		t.Error("kept for more than 62 days")
	}
	if _, err := s.ForgetPerson(t.Context(), account, "k", "bert"); err != nil {
		t.Errorf("after 62 days: %v", err)
	}
	if _, err := s.ForgetPerson(t.Context(), account, "unknown", "bert"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of an unknown key: %v", err)
	}
}

// The rows of people are summed over edges. No edge shows or publishes those of a person who is forgotten.
func TestPeopleOfSeveralGateways(t *testing.T) {
	t.Parallel()
	shared := share(storetest.OpenBolt(t, tempStore(t)))
	var edges []*store.Store
	for _, name := range []string{"a", "b"} {
		s, err := store.New(shared, store.Options{Edge: name, Own: storetest.OpenBolt(t, tempStore(t))})
		must(t, err)
		defer s.Close()
		edges = append(edges, s)
	}
	k, _, err := edges[0].CreateKey(t.Context(), account, store.KeyFields{Name: "k", Scope: "*"})
	must(t, err)
	must(t, edges[1].CatchUp(t.Context()))
	today := time.Now().UTC().Format(time.DateOnly)
	people := func(s *store.Store) map[string]int64 {
		sums := map[string]int64{}
		must(t, s.EachPerson(t.Context(), account, k.ID, "", today, today, func(r store.UsageRow) error {
			sums[r.Person] += r.Requests
			return nil
		}))
		return sums
	}
	save := func() {
		for _, s := range edges {
			var rows []store.UsageRow
			for _, person := range []string{"anna", "bert"} {
				r := usageRow(today, k.ID, "", 1)
				r.Person = person
				rows = append(rows, r)
			}
			must(t, s.SaveUsage(t.Context(), rows))
			must(t, s.PublishUsage(t.Context()))
		}
	}
	save()
	for _, s := range edges {
		if got := people(s); got["anna"] != 2 || got["bert"] != 2 || len(usageRows(t, s, account, today, today)) != 0 {
			t.Errorf("before: %v", got)
		}
	}
	_, err = edges[0].ForgetPerson(t.Context(), account, k.ID, "anna")
	must(t, err)
	must(t, edges[1].CatchUp(t.Context()))
	save()
	for _, s := range edges {
		if got := people(s); got["anna"] != 0 || got["bert"] != 2 {
			t.Errorf("after: %v", got)
		}
	}
}
