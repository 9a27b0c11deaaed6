package activity_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/tests/storetest"
)

// find returns what a query selects.
func find(t *testing.T, l *activity.Log, q activity.Query) activity.Found {
	t.Helper()
	found, err := l.Find(t.Context(), account, q)
	must(t, err)
	return found
}

func TestRecent(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"in a file": filepath.Join(t.TempDir(), "activity.db"), "in memory": ""} {
		synctest.Test(t, func(t *testing.T) {
			l := newLog(t, activity.Options{Store: storetest.New(t), Path: path})
			if got := l.Recent(account); len(got) != 0 {
				t.Errorf("%s: at first there is %v", name, got)
			}
			for i := range 450 {
				l.Record(account, request(i))
				time.Sleep(50 * time.Millisecond)
			}
			l.Record("other", request(9))
			if got := ids(l, "other"); !slices.Equal(got, []string{"req_9"}) {
				t.Errorf("%s: recent of the other account: %v", name, got)
			}
			got := ids(l, account)
			if len(got) != 200 || got[0] != "req_449" || got[1] != "req_448" || got[199] != "req_250" {
				t.Errorf("%s: %d recent, %v", name, len(got), got)
			}
			l.Recent(account)[0].ID = "changed"
			if got := ids(l, account)[0]; got != "req_449" {
				t.Errorf("%s: a reader has changed the newest to %q", name, got)
			}
		})
	}
}

// After a restart, all requests are there. A killed process loses those of the last ten seconds.
func TestRequestsSurvive(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, _ := open(t, path)
		for i := range 300 {
			r := request(i)
			if i%3 == 0 {
				r.ErrorClass, r.ErrorCode = activity.CallerError, "invalid"
			}
			l.Record(account, r)
			time.Sleep(time.Second / 10)
		}
		synctest.Wait()
		killed := filepath.Join(t.TempDir(), "killed.db")
		data, err := os.ReadFile(activityPath(path))
		if err == nil {
			err = os.WriteFile(killed, data, 0o600)
		}
		must(t, err)
		after := newLog(t, activity.Options{Store: st, Path: killed})
		time.Sleep(11 * time.Second) // until it is open
		if got := ids(after, account); len(got) < 130 || len(got) > 201 {
			t.Errorf("%d requests after a kill: %v", len(got), got)
		}
		want, _ := json.Marshal(l.Recent(account))
		closeBoth(t, l, st)
		l, _, _ = open(t, path)
		time.Sleep(11 * time.Second)
		have, _ := json.Marshal(l.Recent(account))
		if string(have) != string(want) {
			t.Errorf("after a restart:\n%s\nnot\n%s", have, want)
		}
		if info, err := os.Stat(activityPath(path)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file: %v, %v", info, err)
		}
	})
}

// Refused requests, and those that failed by the client's fault, are counted by key, error and minute. Each
// of the last 64 is found by its id. Those without a valid key are not part of the usage.
func TestCounted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, _ := open(t, path)
		for i := range 100 {
			l.Record(account, request(i))
		}
		calls := 0
		defer l.Subscribe(func(string) { calls++ })()
		bad := func(i int, class, key, code string) activity.Request {
			r := request(i)
			r.ID += code
			r.KeyID, r.ErrorClass, r.ErrorCode, r.Error = key, class, code, fmt.Sprint(code, i)
			r.InputTokens, r.OutputTokens = 0, 0
			return r
		}
		for i := range 60 { // two minutes, because the bubble begins with one
			for n := range 50 {
				l.Refuse(account, bad(i*100+n, activity.PolicyError, "a", "revoked"))
				l.Refuse(account, bad(i*100+n, activity.PolicyError, "", "unknown"))
				l.Record(account, bad(i*100+n, activity.CallerError, "b", "invalid"))
			}
			time.Sleep(2 * time.Second)
		}
		if calls != 4+3000 {
			t.Errorf("%d calls of subscribers", calls)
		}
		check := func(l *activity.Log, when string) {
			t.Helper()
			rows := slices.DeleteFunc(l.Recent(account), func(r activity.Request) bool { return r.ErrorClass == "" })
			if len(rows) != 6 || len(find(t, l, activity.Query{Outcome: activity.Answered, Limit: 1000}).Requests) != 100 {
				t.Errorf("%s: %d entries: %+v", when, len(rows), rows)
			}
			for i, r := range rows {
				want, n := []int{5949, 2949}[i/3], 64
				first := want - 149 + 36
				if r.KeyID == "" { // anyone can send these
					n, first = 4, want-3
				}
				if r.Refusals != 1500 || r.ID != fmt.Sprint("req_", want, r.ErrorCode) ||
					r.Error != fmt.Sprint(r.ErrorCode, want) || len(r.IDs) != n || r.IDs[n-1] != r.ID ||
					r.IDs[0] != fmt.Sprint("req_", first, r.ErrorCode) {
					t.Errorf("%s: %+v", when, r)
				}
				for _, q := range []activity.Query{{ID: r.IDs[0], Limit: 10}, {Text: strings.ToUpper(r.IDs[2]), Limit: 10}} {
					if got := find(t, l, q).Requests; len(got) != 1 || got[0].ID != r.ID {
						t.Errorf("%s: %+v finds %+v", when, q, got)
					}
				}
			}
		}
		check(l, "counted")
		time.Sleep(time.Hour)
		check(l, "later")
		if got := total(t, l, account).Requests; got != 3100 {
			t.Errorf("the usage has %d requests", got)
		}
		closeBoth(t, l, st)
		l, _, _ = open(t, path)
		time.Sleep(11 * time.Second)
		check(l, "restarted")
	})
}

// A damaged or foreign file is moved aside, whenever the damage is found.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"foreign": func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("a text\n", 5000)), 0o600) },
		"another program's": func(path string) error {
			_ = os.Remove(path)
			db, err := bolt.Open(path, 0o600, nil)
			if err == nil {
				err = db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("items")); return err })
			}
			return errors.Join(err, db.Close())
		},
		"cut":      func(path string) error { return os.Truncate(path, 20_000) },
		"empty":    func(path string) error { return os.Truncate(path, 0) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"zeros": func(path string) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, 100_000), 3*4096)
			_ = f.Close()
			return err
		},
	} {
		for _, running := range []bool{false, true} {
			if running && (name == "foreign" || name == "another program's" || name == "a folder") {
				continue
			}
			name := fmt.Sprintf("%s, running %t", name, running)
			path := filepath.Join(t.TempDir(), "gateway.db")
			synctest.Test(t, func(t *testing.T) {
				l, st, _ := open(t, path)
				for i := range 2000 {
					l.Record(account, request(i))
				}
				time.Sleep(11 * time.Second)
				if !running {
					must(t, l.Close())
				}
				if strings.HasPrefix(name, "a folder") {
					_ = os.Remove(activityPath(path))
				}
				must(t, damage(activityPath(path)))
				if !running {
					l = newLog(t, activity.Options{Store: st, Path: activityPath(path)})
				} else {
					_, _ = l.Find(t.Context(), account, activity.Query{Text: "nothing", Limit: 1}) // may fail once
				}
				for i := range 3 {
					r := request(i)
					r.ID = fmt.Sprintf("new_%d", i)
					l.Record(account, r)
					time.Sleep(40 * time.Second)
				}
				if got := ids(l, account); len(got) < 3 || got[0] != "new_2" || got[2] != "new_0" {
					t.Errorf("%s: %v", name, got)
				}
				if err := l.Close(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				l = newLog(t, activity.Options{Store: st, Path: activityPath(path)})
				time.Sleep(11 * time.Second)
				if got := ids(l, account); len(got) < 3 || got[0] != "new_2" {
					t.Errorf("%s, restarted: %v", name, got)
				}
			})
		}
	}
}

// A file that cannot be written stays where it is, and requests stay in memory.
func TestFileOfAnother(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write any file")
	}
	path := filepath.Join(t.TempDir(), "activity.db")
	must(t, os.WriteFile(path, []byte("x"), 0o400))
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t, activity.Options{Store: storetest.New(t), Path: path})
		l.Record(account, request(1))
		time.Sleep(time.Minute)
		if data, err := os.ReadFile(path); string(data) != "x" || len(ids(l, account)) != 1 {
			t.Errorf("%q, %v", data, err)
		}
	})
}

// Requests stay in memory while there is no place for the file.
func TestNoPlace(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "folder")
	must(t, os.WriteFile(folder, nil, 0o600))
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t, activity.Options{Store: storetest.New(t), Path: filepath.Join(folder, "activity.db")})
		for i := range 30_000 {
			r := request(i)
			l.Record(account, r)
			if i%1000 == 0 {
				time.Sleep(11 * time.Second)
			}
		}
		if got := ids(l, account); len(got) != 200 || got[0] != "req_29999" {
			t.Errorf("without a file: %v", got)
		}
		must(t, errors.Join(os.Remove(folder), os.Mkdir(folder, 0o700)))
		time.Sleep(time.Minute)
		if _, err := os.Stat(filepath.Join(folder, "activity.db")); err != nil {
			t.Error(err)
		}
		if got := ids(l, account); len(got) != 200 || got[0] != "req_29999" {
			t.Errorf("with a file: %v", got)
		}
	})
}
