package activity_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/tests/storetest"
)

// Failed requests are kept for 30 days, and at most 5,000 of an account.
func TestFailedAreKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "activity.db")
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t, activity.Options{Store: storetest.New(t), Path: path})
		for i := range 6000 {
			r := request(i)
			r.ID, r.ErrorClass = fmt.Sprintf("req_%06d", i), activity.GatewayError
			r.Time = r.Time.Add(-31 * 24 * time.Hour).Add(time.Duration(i) * time.Minute * 10)
			if i >= 500 {
				r.Time = time.Now()
			}
			l.Record(account, r)
			if i%1000 == 0 {
				time.Sleep(6 * time.Second)
			}
		}
		time.Sleep(6 * time.Second)
		n, before := 0, ""
		for {
			found := find(t, l, activity.Query{Outcome: activity.Failed, Limit: 1000, Before: before})
			if n += len(found.Requests); found.Next == "" {
				break
			}
			before = found.Next
		}
		if n != 5000 {
			t.Errorf("%d failed requests", n)
		}
	})
}

// Failed requests, and entries that count others, go after 30 days. Others stay while there is room.
func TestOldRequestsGo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "activity.db")
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t, activity.Options{Store: storetest.New(t), Path: path})
		for days, name := range map[int]string{0: "new", 29: "month", 31: "old"} {
			for _, class := range []string{"", activity.UpstreamError, activity.PolicyError, activity.CallerError} {
				r := request(1)
				r.ID, r.ErrorClass, r.ErrorCode = name+class, class, name+class
				r.Time = r.Time.AddDate(0, 0, -days)
				l.Record(account, r)
			}
		}
		time.Sleep(6 * time.Second)
		for outcome, want := range map[activity.Outcome][]string{
			activity.Answered: {"new", "month", "old"}, activity.Failed: {"newupstream", "monthupstream"},
			activity.Refused: {"newpolicy", "monthpolicy"}, activity.Client: {"newcaller", "monthcaller"},
		} {
			// Those in memory, whose minute is not over, go when they are only in the file.
			time.Sleep(2 * time.Minute)
			l.Record("other", request(2))
			time.Sleep(6 * time.Second)
			var got []string
			for _, r := range find(t, l, activity.Query{Outcome: outcome, Limit: 100}).Requests {
				got = append(got, r.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, not %q", outcome, got, want)
			}
		}
	})
}

// A full file loses the oldest answered requests of the account with the most.
func TestFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "activity.db")
	synctest.Test(t, func(t *testing.T) {
		st := storetest.New(t)
		if _, err := st.CreateAccount(t.Context(), "small"); err != nil {
			t.Fatal(err)
		}
		l := newLog(t, activity.Options{Store: st, Path: path, MaxBytes: activity.MinMaxBytes})
		for i := range 60_000 {
			r := request(i)
			r.Error = strings.Repeat("x", 200)
			if i == 0 {
				r.ErrorClass = activity.UpstreamError
			}
			l.Record(account, r)
			if i < 100 {
				l.Record("small", request(i))
			}
			if i%1000 == 0 {
				time.Sleep(6 * time.Second)
			}
		}
		time.Sleep(6 * time.Second)
		if found, err := l.Find(t.Context(), "small", activity.Query{Limit: 1000}); err != nil || len(found.Requests) != 100 {
			t.Errorf("%d requests of the small account, %v", len(found.Requests), err)
		}
		if got := find(t, l, activity.Query{Outcome: activity.Failed, Limit: 2}).Requests; len(got) != 1 {
			t.Errorf("failed requests: %v", got)
		}
		if got := ids(l, account); len(got) != 200 || got[0] != "req_59999" {
			t.Errorf("the newest: %v", got)
		}
		if f := find(t, l, activity.Query{Limit: 1}); !f.Since.After(time.Date(2000, 1, 1, 0, 0, 30, 0, time.UTC)) {
			t.Errorf("since %v", f.Since)
		}
	})
}

// An account with the name of a removed one has none of its requests, and those of removed accounts go.
func TestAccountWithUsedName(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "activity.db")
	synctest.Test(t, func(t *testing.T) {
		st := storetest.New(t)
		l := newLog(t, activity.Options{Store: st, Path: path})
		for i := range 2 {
			if _, err := st.CreateAccount(t.Context(), "team"); err != nil {
				t.Fatal(err)
			}
			if got := ids(l, "team"); len(got) != 0 {
				t.Errorf("account %d has %v", i, got)
			}
			l.Record("team", request(i))
			time.Sleep(6 * time.Second)
			l.Record("team", request(i+10))
			if got := ids(l, "team"); len(got) != 2 {
				t.Errorf("account %d has %v", i, got)
			}
			if err := st.RemoveAccount(t.Context(), "team"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		l.Record(account, request(20))
		time.Sleep(2 * time.Minute)
		l.Record(account, request(21))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || strings.Count(string(data), "team") > 1 {
			t.Errorf("the file still has the account, %v", err)
		}
	})
}
