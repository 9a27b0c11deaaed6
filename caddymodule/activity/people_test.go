package activity_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

// newKey creates a key whose requests name people.
func newKey(t *testing.T, st *store.Store) store.Key {
	t.Helper()
	k, _, err := st.CreateKey(t.Context(), account, store.KeyFields{
		Name: "webui", Scope: "*", PersonFields: store.PersonFields{UserField: true},
	})
	must(t, err)
	return k
}

// ask records a request of a person, as the request path does.
func ask(t *testing.T, l *activity.Log, key, person string, i int) string {
	t.Helper()
	r := request(i)
	r.KeyID, r.Person = key, l.Person(t.Context(), account, key, person)
	l.Record(account, r)
	return r.Person
}

// people returns the requests of the people behind a key in the last days.
func people(t *testing.T, l *activity.Log, key string, days int) map[string]int64 {
	t.Helper()
	now, sums := time.Now().UTC(), make(map[string]int64)
	from := now.AddDate(0, 0, 1-days).Format(time.DateOnly)
	must(t, l.EachPerson(t.Context(), account, key, "", from, now.Format(time.DateOnly), func(r store.UsageRow) error {
		sums[r.Person] += r.Requests
		return nil
	}))
	return sums
}

// A key has a thousand people on a day, also after the process was killed; the others are one. The usage of the key
// counts each request once.
func TestPeopleAreBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, _ := open(t, path)
		k := newKey(t, st)
		for i := range 600 {
			ask(t, l, k.ID, fmt.Sprint("person ", i), i)
		}
		time.Sleep(11 * time.Second)
		ask(t, l, k.ID, "lost", 1000)
		l, st, _ = open(t, copyOf(t, path))
		defer closeBoth(t, l, st)
		if got := people(t, l, k.ID, 1); len(got) != 600 || got["person 1"] != 1 {
			t.Errorf("after the process was killed: %d people", len(got))
		}
		for i := range 10_000 {
			if i == 100 { // others that were read and rows that are unsaved
				time.Sleep(11 * time.Second)
			}
			ask(t, l, k.ID, fmt.Sprint("person ", i), i)
		}
		ask(t, l, k.ID, "person 1", 1)
		got := people(t, l, k.ID, 1)
		if len(got) != 1001 || got[store.OtherPeople] != 9000 || got["person 1"] != 3 || got["person 5000"] != 0 {
			t.Errorf("%d people, others %d, one %d", len(got), got[store.OtherPeople], got["person 1"])
		}
		if used := total(t, l, account); used.Requests != 10_601 {
			t.Errorf("the usage has %d requests", used.Requests)
		}
		day := time.Now().UTC().Format(time.DateOnly)
		must(t, l.EachPerson(t.Context(), account, k.ID, "person 1", day, day, func(r store.UsageRow) error {
			if r.Person != "person 1" {
				t.Errorf("a row of %q", r.Person)
			}
			return nil
		}))
		time.Sleep(24 * time.Hour)
		if name := ask(t, l, k.ID, "person 9000", 1); name != "person 9000" {
			t.Errorf("on the next day: %q", name)
		}
		if got := people(t, l, k.ID, 1); len(got) != 1 {
			t.Errorf("on the next day: %v", got)
		}
	})
}

// A person who is forgotten is in no answer and not in the files, and counts among others until tomorrow. A removed
// key forgets all.
func TestForgetPerson(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, kv := open(t, path)
		k := newKey(t, st)
		search := func(text string) int {
			return len(find(t, l, activity.Query{Text: text, Limit: 100}).Requests)
		}
		file := func(text string) bool {
			t.Helper()
			synctest.Wait()
			data, err := os.ReadFile(activityPath(path))
			must(t, err)
			return strings.Contains(string(data), text)
		}
		for i, name := range []string{"anna@example.com", "bert/x", "anna@example.com"} {
			ask(t, l, k.ID, name, i)
			time.Sleep(11 * time.Second)
		}
		ask(t, l, k.ID, "anna@example.com", 4) // not saved
		if got := people(t, l, k.ID, 1); got["anna@example.com"] != 3 || got["bert/x"] != 1 || search("ANNA@") != 3 ||
			!file("anna@") {
			t.Errorf("before: %v, %d found", got, search("anna@"))
		}
		forgotten, err := st.ForgetPerson(t.Context(), account, "webui", "anna@example.com")
		if err != nil || forgotten.ID != k.ID {
			t.Fatal(forgotten, err)
		}
		check := func(when string) {
			t.Helper()
			if got := people(t, l, k.ID, 3); got["anna@example.com"] != 0 || got["bert/x"] != 1 || search("anna@") != 0 ||
				search("bert/") != 1 {
				t.Errorf("%s: %v, %d found", when, got, search("anna@"))
			}
			_, err := st.OwnUsage(t.Context(), store.UsageRow{Account: account, Day: "2000-01-01", Key: k.ID, Person: "x"})
			must(t, err)
		}
		check("at once")
		if name := ask(t, l, k.ID, "anna@example.com", 5); name != store.OtherPeople {
			t.Errorf("on the same day: %q", name)
		}
		time.Sleep(11 * time.Minute)
		check("erased")
		for i := range 2000 { // the file uses its free pages again
			ask(t, l, k.ID, "bert/y", 10+i)
			if i%100 == 0 {
				time.Sleep(11 * time.Second)
			}
		}
		if file("anna@") {
			t.Error("the name is in the file of the requests")
		}
		stored := func() (n int) {
			_, err := kv.Each(context.Background(), store.Prefix("x/people/"), func(item store.Item) error {
				if n++; strings.Contains(item.Key+string(item.Value), "anna@") {
					t.Error("the name is in the store")
				}
				return nil
			})
			must(t, err)
			return n
		}
		if n := stored(); n != 3 {
			t.Errorf("%d rows of people", n)
		}
		time.Sleep(24 * time.Hour)
		if name := ask(t, l, k.ID, "anna@example.com", 5); name != "anna@example.com" || search("anna@") != 1 {
			t.Errorf("on the next day: %q", name)
		}
		_, err = st.RemoveKey(t.Context(), account, k.ID)
		must(t, err)
		if got := people(t, l, k.ID, 3); len(got) != 0 || search("anna@") != 0 || search("bert/") != 0 {
			t.Errorf("of a removed key: %v", got)
		}
		time.Sleep(11 * time.Minute)
		if n := stored(); n != 0 {
			t.Errorf("%d rows of people of a removed key", n)
		}
		closeBoth(t, l, st)
	})
}

// Refusals of several people in a minute are entries of their own, even if they begin in the same millisecond. To
// forget a person changes only the entry of this one.
func TestRefusalsOfPeople(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, _ := open(t, path)
		k := newKey(t, st)
		for i := range 6 {
			r := request(i)
			r.KeyID, r.Person, r.InputTokens, r.OutputTokens = k.ID, fmt.Sprint("person ", i%2), 0, 0
			r.ErrorClass, r.ErrorCode = activity.PolicyError, "rate_limited"
			l.Record(account, r)
			if i%2 == 1 {
				time.Sleep(time.Millisecond)
			}
		}
		check := func(when string, want ...string) {
			t.Helper()
			for limit := 1; limit <= 10; limit += 9 {
				var got []string
				for q := (activity.Query{Limit: limit}); ; {
					found := find(t, l, q)
					for _, r := range found.Requests {
						got = append(got, fmt.Sprint(r.Person, " ", r.Refusals, " ", r.ID, " ", r.IDs))
					}
					if q.Before = found.Next; q.Before == "" {
						break
					}
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("%s, by %d: %q, want %q", when, limit, got, want)
				}
			}
		}
		want := []string{"person 0 3 req_4 [req_0 req_2 req_4]", "person 1 3 req_5 [req_1 req_3 req_5]"}
		check("unsaved", want...)
		time.Sleep(11 * time.Second)
		check("saved", want...)
		closeBoth(t, l, st)
		l, st, _ = open(t, path)
		synctest.Wait() // it opens the file
		check("after a restart", want...)
		_, err := st.ForgetPerson(t.Context(), account, "webui", "person 0")
		must(t, err)
		want[0] = " 3 req_4 [req_0 req_2 req_4]"
		check("forgotten", want...)
		time.Sleep(11 * time.Minute)
		check("erased", want...)
		closeBoth(t, l, st)
	})
}
