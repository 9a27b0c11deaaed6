package activity_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// limited creates a key with limits, in an account of its own.
func limited(t *testing.T, st *store.Store, id string, ofAccount, ofKey limits.UsageLimits) store.Key {
	t.Helper()
	_, err := st.CreateAccount(t.Context(), id)
	if err == nil {
		_, err = st.SetAccount(t.Context(), id, func(a *store.Account) { a.Limits.UsageLimits = ofAccount })
	}
	if err != nil {
		t.Fatal(err)
	}
	k, _, err := st.CreateKey(t.Context(), id, store.KeyFields{Name: "laptop", Scope: "*", Limits: ofKey})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A crash restores at most the quota of about a second.
func TestQuotasOfKilledProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, _ := open(t, path)
		quota := limits.UsageLimits{TokensPerDay: 1000}
		keys := map[string]store.Key{
			"key":     limited(t, st, "of-key", limits.UsageLimits{}, quota),
			"account": limited(t, st, "of-account", quota, limits.UsageLimits{}),
			"neither": limited(t, st, "of-neither", limits.UsageLimits{}, limits.UsageLimits{RequestsPerMinute: 60}),
		}
		for range 15 { // the last batch was less than a second ago
			for _, k := range keys {
				r := request(1)
				r.KeyID = k.ID
				l.Record(k.Account, r)
			}
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		next, _, _ := open(t, copyOf(t, path))
		for of, want := range map[string]int64{"key": 15, "account": 15, "neither": 0} {
			if got := total(t, next, keys[of].Account).Requests; got != want {
				t.Errorf("a quota of %s: %d of 15 requests are saved, want %d", of, got, want)
			}
		}
	})
}

// batches is a KV that records when only the usage of days was written.
type batches struct {
	store.KV
	takes time.Duration

	mu sync.Mutex
	at []time.Time
}

func (b *batches) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	ofDays := len(t.Then) > 0 && !slices.ContainsFunc(t.Then,
		func(op store.Op) bool { return !strings.HasPrefix(op.Key, "x/usage/") })
	if ofDays {
		b.mu.Lock()
		b.at = append(b.at, time.Now())
		b.mu.Unlock()
		time.Sleep(b.takes)
	}
	return b.KV.Txn(ctx, t)
}

// Batches use at most a twentieth of the time, and there is at most one a second.
func TestPaceOfQuotas(t *testing.T) {
	t.Parallel()
	for takes, pause := range map[time.Duration]time.Duration{0: time.Second, 200 * time.Millisecond: 4 * time.Second} {
		path := filepath.Join(t.TempDir(), "gateway.db")
		synctest.Test(t, func(t *testing.T) {
			kv := &batches{KV: storetest.OpenBolt(t, path), takes: takes}
			st, err := store.New(kv, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = st.Close() })
			l := newLog(t, activity.Options{Store: st})
			k := limited(t, st, "of-key", limits.UsageLimits{}, limits.UsageLimits{RequestsPerDay: 1000})
			for range 600 { // a minute
				r := request(1)
				r.KeyID = k.ID
				l.Record(k.Account, r)
				time.Sleep(100 * time.Millisecond)
			}
			kv.mu.Lock()
			at := slices.Clone(kv.at)
			kv.mu.Unlock()
			if minimum := int(time.Minute/(pause+takes+time.Second)) - 6; len(at) < minimum {
				t.Errorf("%d batches that take %v in a minute, want at least %d", len(at), takes, minimum)
			}
			for i := 1; i < len(at); i++ {
				if d := at[i].Sub(at[i-1]); d < pause+takes {
					t.Errorf("batches that take %v: %v after the last one, want at least %v", takes, d, pause+takes)
				}
			}
		})
	}
}
