package activity_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

const account = store.DefaultAccount

// brittle is a KV whose writes fail while fails is set.
type brittle struct {
	store.KV
	fails  atomic.Bool
	unsure atomic.Bool // with fails: failed writes take effect
	writes atomic.Int64
	before atomic.Pointer[func()] // called before the next write
}

var errDisk = errors.New("the disk is full")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *brittle) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if b.fails.Load() {
		if b.unsure.Load() {
			_, _ = b.KV.Txn(ctx, t)
		}
		return store.TxnResult{}, errDisk
	}
	if f := b.before.Swap(nil); f != nil {
		(*f)()
	}
	b.writes.Add(1)
	return b.KV.Txn(ctx, t)
}

// open opens the store at path and a log of it. The test may close them.
func open(t *testing.T, path string) (*activity.Log, *store.Store, *brittle) {
	t.Helper()
	kv := &brittle{KV: storetest.OpenBolt(t, path)}
	st, err := store.New(kv, store.Options{})
	must(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return newLog(t, activity.Options{Store: st, Path: activityPath(path)}), st, kv
}

// activityPath is the file of the activity next to a store.
func activityPath(store string) string { return filepath.Join(filepath.Dir(store), "activity.db") }

// newLog returns a log that is closed when the test ends, before its store.
func newLog(t *testing.T, o activity.Options) *activity.Log {
	t.Helper()
	l := activity.New(o)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func closeBoth(t *testing.T, l *activity.Log, st *store.Store) {
	t.Helper()
	if err := errors.Join(l.Close(), st.Close()); err != nil {
		t.Error(err)
	}
}

// request is a successful request that has just ended.
func request(i int) activity.Request {
	return activity.Request{
		ID: fmt.Sprintf("req_%d", i), Time: time.Now(), KeyID: "key_1", KeyName: "laptop", Deployment: "qwen3:8b",
		Dialect: "chat", Operation: "chat/completions", Status: 200, Streamed: true,
		DurationMillis: 1500, FirstTokenMillis: 300, InputTokens: 100, OutputTokens: 10,
	}
}

// ids returns the ids of the recent requests.
func ids(l *activity.Log, account string) []string {
	var out []string
	for _, r := range l.Recent(account) {
		out = append(out, r.ID)
	}
	return out
}

// used returns the usage of an account by day.
func used(t *testing.T, l *activity.Log, account string) map[string]store.Usage {
	t.Helper()
	days := make(map[string]store.Usage)
	from, to := time.Now().AddDate(-1, 0, 0).Format(time.DateOnly), time.Now().AddDate(1, 0, 0).Format(time.DateOnly)
	err := l.EachUsage(context.Background(), account, "", from, to, func(r store.UsageRow) error {
		u := days[r.Day]
		u.Add(r.Usage)
		days[r.Day] = u
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return days
}

// total returns the usage of all days.
func total(t *testing.T, l *activity.Log, account string) (sum store.Usage) {
	t.Helper()
	for _, u := range used(t, l, account) {
		sum.Add(u)
	}
	return sum
}
