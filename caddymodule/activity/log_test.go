package activity_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func TestRecent(t *testing.T) {
	t.Parallel()
	st := storetest.New(t)
	l := newLog(t, activity.Options{Store: st})
	if got := l.Recent(account); len(got) != 0 {
		t.Errorf("at first there is %v", got)
	}
	for i := range 3 {
		l.Record(account, request(i))
	}
	l.Record("other", request(9))
	if got := ids(l, account); !slices.Equal(got, []string{"req_2", "req_1", "req_0"}) {
		t.Errorf("recent: %v", got)
	}
	if got := ids(l, "other"); !slices.Equal(got, []string{"req_9"}) {
		t.Errorf("recent of the other account: %v", got)
	}
	for i := range 450 {
		l.Record(account, request(i))
	}
	got := ids(l, account)
	if len(got) != 200 || got[0] != "req_449" || got[1] != "req_448" || got[199] != "req_250" {
		t.Errorf("%d recent, %v", len(got), got)
	}
	l.Recent(account)[0].ID = "changed"
	if got := ids(l, account)[0]; got != "req_449" {
		t.Errorf("a reader has changed the newest to %q", got)
	}
}

// After a restart, the last requests are there in the same order. After a kill, those of the last
// minute are missing.
func TestRecentSurvives(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, kv := open(t, path)
		for i := range 230 {
			l.Record(account, request(i))
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		saved := kv.writes.Load()
		time.Sleep(10 * time.Minute)
		if got := kv.writes.Load(); got != saved {
			t.Errorf("%d writes though nothing happened", got-saved)
		}
		l.Record(account, request(230))
		kv.fails.Store(true) // as if killed
		if err := l.Close(); !errors.Is(err, errDisk) {
			t.Errorf("closing the log: %v", err)
		}
		kv.fails.Store(false)
		_ = st.Close()

		l, st, _ = open(t, path)
		got := ids(l, account)
		if len(got) != 200 || got[0] != "req_229" || got[199] != "req_30" {
			t.Fatalf("%d recent after a kill: %v", len(got), got)
		}
		l.Record(account, request(231))
		before := l.Recent(account)
		closeBoth(t, l, st)

		l, _, _ = open(t, path)
		after := l.Recent(account)
		if len(after) != 200 || after[0].ID != "req_231" || after[1].ID != "req_229" {
			t.Fatalf("%d recent after a restart: %v", len(after), ids(l, account))
		}
		want, _ := json.Marshal(before)
		if have, _ := json.Marshal(after); string(have) != string(want) {
			t.Errorf("after a restart:\n%s\nnot\n%s", have, want)
		}
		if d := after[0]; d.DurationMillis != 1500 || d.FirstTokenMillis != 300 || d.Deployment != "qwen3:8b" {
			t.Errorf("after a restart: %+v", d)
		}
	})
}

// The requests of idle accounts are only in the store. They are loaded with the next request.
func TestRecentOfRestingAccount(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, _ := open(t, path)
		for i := range 150 {
			l.Record(account, request(i))
			time.Sleep(time.Second)
		}
		refused := request(0)
		refused.ID, refused.Error = "refused_0", "invalid_api_key"
		l.Refuse(account, refused)
		time.Sleep(14 * time.Minute)
		if l.Accounts() != 1 {
			t.Error("an active account is dropped")
		}
		time.Sleep(3 * time.Minute)
		if l.Accounts() != 0 {
			t.Error("a resting account stays in memory")
		}
		check := func(want ...string) {
			t.Helper()
			if got := ids(l, account); len(got) != 201 || !slices.Equal(got[:3], want) || got[200] != "req_10" {
				t.Errorf("%d recent: %v, want %v first", len(got), got, want)
			}
		}
		for i := range 60 {
			l.Record(account, request(150+i))
			time.Sleep(time.Millisecond)
		}
		check("req_209", "req_208", "req_207")
		time.Sleep(20 * time.Minute)
		l.Record(account, request(210))
		time.Sleep(2 * time.Minute) // it is saved with the older ones, although they were not read
		closeBoth(t, l, st)
		l, _, _ = open(t, path)
		if got := ids(l, account); len(got) != 201 || got[0] != "req_210" || got[1] != "req_209" {
			t.Errorf("%d recent after a restart: %v", len(got), got)
		}
	})
}

// Unreadable requests are dropped.
func TestDamagedRecent(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"the data":   `{"v":1,"data":"W3siaWQiOjF9XQ=="}`, // [{"id":1}]
		"the record": `{"v":`,
	} {
		path := filepath.Join(t.TempDir(), "gateway.db")
		l, st, kv := open(t, path)
		if _, err := kv.Txn(t.Context(),
			store.Txn{Then: []store.Op{store.Put("x/recent/"+account, []byte(value))}}); err != nil {
			t.Fatal(err)
		}
		if got := ids(l, account); len(got) != 0 {
			t.Errorf("%s: recent: %v", name, got)
		}
		l.Record(account, request(1))
		closeBoth(t, l, st)
		l, _, _ = open(t, path)
		if got := ids(l, account); !slices.Equal(got, []string{"req_1"}) {
			t.Errorf("%s: recent after a restart: %v", name, got)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 16, 36, 5, 123_456_789, time.FixedZone("", 7200))
	l := newLog(t, activity.Options{Store: storetest.New(t)})
	l.Record(account, activity.Request{
		ID: "req_1", Time: at, KeyID: "key_1", KeyName: "laptop", Deployment: "m", Dialect: "messages", Operation: "messages",
		Status: 200, Streamed: true, InputTokens: 5, OutputTokens: 7,
		DurationMillis:   activity.Millis(1234_600 * time.Microsecond),
		FirstTokenMillis: activity.Millis(200 * time.Microsecond),
	})
	const want = `{"id":"req_1","time":"2026-11-21T14:36:05.123Z","key_id":"key_1","key_name":"laptop","deployment":"m",` +
		`"dialect":"messages","operation":"messages","status":200,"streamed":true,"duration_ms":1235,"first_token_ms":1,` +
		`"input_tokens":5,"output_tokens":7}`
	got, err := json.Marshal(l.Recent(account)[0])
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, not\n%s", got, err, want)
	}
	var back activity.Request
	if err := json.Unmarshal(got, &back); err != nil || back.DurationMillis != 1235 ||
		!back.Time.Equal(at.Truncate(time.Millisecond)) {
		t.Errorf("read as %+v, %v", back, err)
	}
}

// Texts of clients are bounded in memory, and so is the list of requests in the store.
func TestLongTexts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	st := storetest.Open(t, path)
	l := newLog(t, activity.Options{Store: st})
	r := request(0)
	for _, field := range []*string{&r.KeyID, &r.KeyName, &r.Deployment, &r.Dialect, &r.Operation} {
		*field = strings.Repeat("<", 253) + "é" + strings.Repeat("é", 1<<20)
	}
	for i := range 200 {
		r.ID = fmt.Sprintf("req_%d", i)
		l.Record(account, r)
	}
	if got := l.Recent(account)[0].Deployment; got != strings.Repeat("<", 253)+"é" {
		t.Errorf("a text of %d bytes is kept", len(got))
	}
	closeBoth(t, l, st)
	st = storetest.Open(t, path)
	l = newLog(t, activity.Options{Store: st})
	if got := ids(l, account); len(got) < 50 || got[0] != "req_199" {
		t.Errorf("%d are left after a restart", len(got))
	}
}

// Subscribers are called after each request was added, and may read it.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	st := storetest.New(t)
	l := newLog(t, activity.Options{Store: st})
	var notified []string
	stop := l.Subscribe(func(account string) { notified = append(notified, fmt.Sprint(account, len(l.Recent(account)))) })
	var other int
	stopOther := l.Subscribe(func(string) { other++ })
	l.Record(account, request(1))
	l.Record(account, request(2))
	l.Record("b", request(3))
	stop()
	stop()
	l.Record(account, request(4))
	if want := []string{account + "1", account + "2", "b1"}; !slices.Equal(notified, want) {
		t.Errorf("notified of %v, not %v", notified, want)
	}
	if stopOther(); other != 4 {
		t.Errorf("the other one was notified of %d requests", other)
	}
}

// No request is lost or counted twice while others read, save, come and go.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	var saved int64
	synctest.Test(t, func(t *testing.T) {
		l, st, kv := open(t, path)
		var notified, recorded atomic.Int64
		l.Subscribe(func(string) { notified.Add(1) })
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range 300 {
					l.Record(account, request(i))
					recorded.Add(1)
					time.Sleep(time.Second)
				}
			})
		}
		wg.Go(func() {
			last := int64(0)
			for range 500 {
				minimum := recorded.Load()
				got := total(t, l, account).Requests
				if maximum := recorded.Load() + 8; got < minimum || got > maximum || got < last {
					t.Errorf("%d requests today, of %d to %d; before it were %d", got, minimum, maximum, last)
				}
				last = got
				l.Subscribe(func(string) {})()
				l.Recent(account)
				time.Sleep(500 * time.Millisecond)
			}
		})
		wg.Go(func() {
			for i := range 10 {
				kv.fails.Store(i%2 == 0)
				time.Sleep(25 * time.Second)
			}
		})
		wg.Wait()
		closeBoth(t, l, st)
		if notified.Load() != 2400 {
			t.Errorf("notified of %d requests", notified.Load())
		}
		l, _, _ = open(t, path)
		saved = total(t, l, account).Requests
	})
	if saved != 2400 {
		t.Errorf("%d of 2400 requests were saved", saved)
	}
}

func TestRecordAllocates(t *testing.T) {
	st := storetest.New(t)
	l := newLog(t, activity.Options{Store: st})
	l.Subscribe(func(string) {})
	r := request(1)
	for range 300 {
		l.Record(account, r)
	}
	if n := testing.AllocsPerRun(1000, func() { l.Record(account, r) }); n > 1 {
		t.Errorf("%v allocations per request", n)
	}
}

func BenchmarkRecord(b *testing.B) {
	st := storetest.New(b)
	l := activity.New(activity.Options{Store: st})
	defer l.Close()
	l.Subscribe(func(string) {})
	r := request(1)
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Record(account, r)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				l.Record(account, r)
			}
		})
	})
}

// Requests without a valid key are counted and sampled. They displace no other requests, and are not
// part of the usage.
func TestRefusals(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, _ := open(t, path)
		for i := range 200 {
			l.Record(account, request(i))
		}
		calls := 0
		defer l.Subscribe(func(string) { calls++ })()
		refused := func(key, text string) activity.Request {
			return activity.Request{
				ID: "req_" + key, Time: time.Now(), KeyID: key, Status: 401,
				ErrorClass: activity.PolicyError, Error: text,
			}
		}
		for range 1000 {
			l.Refuse(account, refused("a", "revoked"))
			l.Refuse(account, refused("b", "expired"))
			l.Refuse(account, refused("", "unknown"))
		}
		if calls != 3 {
			t.Errorf("%d calls of subscribers", calls)
		}
		check := func(l *activity.Log, when string, entries, each int) {
			t.Helper()
			recent := l.Recent(account)
			if !slices.IsSortedFunc(recent, func(a, b activity.Request) int { return b.Time.Compare(a.Time) }) {
				t.Errorf("%s: not the newest first", when)
			}
			recent = slices.DeleteFunc(recent, func(r activity.Request) bool { return r.Refusals == 0 })
			if n := len(l.Recent(account)) - len(recent); n != 200 || len(recent) != entries {
				t.Errorf("%s: %d requests, %d entries about refused ones", when, n, len(recent))
			}
			for _, r := range recent {
				if r.Refusals != each {
					t.Errorf("%s: %+v", when, r)
				}
			}
		}
		check(l, "in a minute", 3, 1000)
		var sum store.Usage
		if err := l.EachUsage(t.Context(), account, "1990-01-01", "2099-12-31", nil,
			func(r store.UsageRow) error { sum.Add(r.Usage); return nil }); err != nil || sum.Requests != 200 {
			t.Errorf("%d requests are used, %v", sum.Requests, err)
		}
		for range 60 {
			time.Sleep(time.Minute)
			l.Refuse(account, refused("a", "revoked"))
		}
		check(l, "after an hour", 50, 1)
		closeBoth(t, l, st)
		l, st, _ = open(t, path)
		defer closeBoth(t, l, st)
		check(l, "after a restart", 50, 1)
		if all := activity.Latest(slices.Concat(l.Recent(account), l.Recent(account))); len(all) != 250 {
			t.Errorf("%d of two gateways", len(all))
		}
	})
}
