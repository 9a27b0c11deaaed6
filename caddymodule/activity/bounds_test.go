package activity_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// A full file loses the oldest requests of the account with the most, of any outcome. Refusals of an account, and its
// other requests, displace none of others.
func TestFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "activity.db")
	synctest.Test(t, func(t *testing.T) {
		st := storetest.New(t)
		if _, err := st.CreateAccount(t.Context(), "small"); err != nil {
			t.Fatal(err)
		}
		l := newLog(t, activity.Options{Store: st, Path: path}.Bounded(16<<20))
		for i := range 60_000 {
			r := request(i)
			r.Error = strings.Repeat("x", 200)
			switch {
			case i == 0, i == 59_000:
				r.ErrorClass = activity.UpstreamError
			case i%5 == 0:
				r.ErrorClass, r.ErrorCode, r.KeyID = activity.PolicyError, "rate_limited", fmt.Sprint("key_", i%7)
			}
			l.Record(account, r)
			if i < 100 {
				l.Record("small", request(i))
			}
			if i%1000 == 0 {
				time.Sleep(11 * time.Second)
			}
		}
		time.Sleep(11 * time.Second)
		if found, err := l.Find(t.Context(), "small", activity.Query{Limit: 1000}); err != nil || len(found.Requests) != 100 {
			t.Errorf("%d requests of the small account, %v", len(found.Requests), err)
		}
		if got := find(t, l, activity.Query{Outcome: activity.Failed, Limit: 2}).Requests; len(got) != 1 ||
			got[0].ID != "req_59000" {
			t.Errorf("failed requests: %v", got)
		}
		if got := ids(l, account); len(got) != 200 || got[0] != "req_59999" {
			t.Errorf("the newest: %v", got)
		}
		if f := find(t, l, activity.Query{Limit: 1}); !f.Since.After(time.Date(2000, 1, 1, 0, 0, 30, 0, time.UTC)) {
			t.Errorf("since %v", f.Since)
		}
		if info, err := os.Stat(path); err != nil || info.Size() > 16<<20 {
			t.Errorf("the file: %v, %v", info, err)
		}
	})
}

// While requests cannot be saved, those of an account displace none of others.
func TestUnsavedIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t, activity.Options{Store: storetest.New(t)})
		for i := range 40_000 {
			l.Record(account, request(i))
			if i < 100 {
				l.Record("small", request(i))
			}
			if i%1000 == 0 {
				time.Sleep(time.Second)
			}
		}
		if n := l.Unsaved(); n < 16_384 || n > 32_768 {
			t.Errorf("%d requests in memory", n)
		}
		if got := ids(l, account); len(got) != 200 || got[0] != "req_39999" {
			t.Errorf("the newest: %v", got)
		}
		if got := ids(l, "small"); len(got) != 100 {
			t.Errorf("%d requests of the small account", len(got))
		}
		for i := range 64_000 { // a thousand keys, each refused 64 times in a minute
			r := request(i)
			r.ErrorClass, r.ErrorCode, r.KeyID = activity.PolicyError, "rate_limited", fmt.Sprint("key_", i%1000)
			l.Record("large", r)
		}
		if n := l.Unsaved(); n < 500 || n > 32_768 { // at least the newer half of the keys is left
			t.Errorf("%d requests and ids in memory", n)
		}
	})
}

// A long period is read in pieces, which have each day and each hour once.
func TestUsageInPieces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := storetest.New(t)
		l := newLog(t, activity.Options{Store: st})
		now, want := time.Now().UTC(), map[string]bool{}
		var rows []store.UsageRow
		for i := range 100 {
			for _, day := range []string{
				now.AddDate(0, 0, -i).Format(time.DateOnly), now.Add(-time.Duration(i) * time.Hour).Format(store.HourOnly),
			} {
				row := store.UsageRow{Account: account, Day: day, Key: "k", Deployment: "m"}
				row.Requests = 1
				rows, want[day] = append(rows, row), true
			}
		}
		if err := st.SaveUsage(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
		for _, layout := range []string{time.DateOnly, store.HourOnly} {
			from, to := now.AddDate(0, 0, -99).Format(layout), now.Format(layout)
			if layout == store.HourOnly {
				from = now.Add(-99 * time.Hour).Format(layout)
			}
			err := l.EachUsage(t.Context(), account, "", from, to, func(r store.UsageRow) error {
				if !want[r.Day] {
					t.Errorf("%s is read twice", r.Day)
				}
				delete(want, r.Day)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		if len(want) > 0 {
			t.Errorf("not read: %v", want)
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
			time.Sleep(11 * time.Second)
			l.Record("team", request(i+10))
			if got := ids(l, "team"); len(got) != 2 {
				t.Errorf("account %d has %v", i, got)
			}
			must(t, st.RemoveAccount(t.Context(), "team"))
			time.Sleep(time.Millisecond)
		}
		l.Record(account, request(20))
		time.Sleep(2 * time.Minute)
		l.Record(account, request(21))
		must(t, l.Close())
		if data, err := os.ReadFile(path); err != nil || strings.Count(string(data), "team") > 1 {
			t.Errorf("the file still has the account, %v", err)
		}
	})
}
