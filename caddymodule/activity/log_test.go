package activity_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/tests/storetest"
)

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

// A request that a revocation has ended in its answer keeps a row of its own, among refusals of the key.
func TestRequestThatWasCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t, activity.Options{Store: storetest.New(t)})
		for i := range 4 {
			r := request(i)
			r.Status, r.ErrorClass, r.ErrorCode = 401, activity.PolicyError, "invalid_api_key"
			if i > 1 {
				r.InputTokens, r.OutputTokens = 0, 0
			}
			l.Record(account, r)
		}
		rows := l.Recent(account)
		slices.SortFunc(rows, func(a, b activity.Request) int { return cmp.Compare(a.ID, b.ID) })
		if len(rows) != 3 || rows[0].ID != "req_0" || rows[0].Refusals != 0 || rows[1].ID != "req_1" ||
			rows[1].OutputTokens != 10 || rows[2].Refusals != 2 {
			t.Errorf("%+v", rows)
		}
	})
}
