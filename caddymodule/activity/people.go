package activity

import (
	"bytes"
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/postern-dev/postern/caddymodule/store"
)

// peopleKey identifies the people behind a key on a day.
type peopleKey struct{ key, day string }

// keyPeople are the people behind a key on a day who have a name of their own.
type keyPeople struct {
	mu    sync.Mutex
	names map[string]bool // nil: not yet read from the store
}

// Person returns the name for which a request of a person behind a key counts today: its own, or OtherPeople.
func (l *Log) Person(ctx context.Context, account, key, name string) string {
	day := dayOf(time.Now())
	if name == "" || !l.store.KeepsPerson(account, key, name, day) {
		return store.OtherPeople
	}
	l.mu.Lock()
	p := l.people[peopleKey{key, day}]
	if p == nil {
		p = new(keyPeople)
		l.people[peopleKey{key, day}] = p
		maps.DeleteFunc(l.people, func(k peopleKey, _ *keyPeople) bool { return k.day < day })
	}
	l.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil {
		p.names = map[string]bool{store.OtherPeople: true}
		err := l.EachPerson(context.WithoutCancel(ctx), account, key, "", day, day, func(r store.UsageRow) error {
			p.names[r.Person] = true
			return nil
		})
		if err != nil {
			l.log.Warn("failed to read the people of a key", "key_id", key, "error", err)
		}
	}
	if !p.names[name] && len(p.names) > store.MaxPeople {
		return store.OtherPeople
	}
	p.names[strings.Clone(name)] = true // without the rest of a body
	return name
}

// EachPerson is [Log.EachUsage] for a person behind a key, or for all if person is "".
func (l *Log) EachPerson(
	ctx context.Context, account, key, person, from, to string, f func(store.UsageRow) error,
) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	if err := l.store.EachPerson(ctx, account, key, person, from, to, f); err != nil {
		return err
	}
	for _, r := range l.unsavedRows(account, true) {
		if r.Key != key || person != "" && r.Person != person || r.Day < from || r.Day > to ||
			!l.store.KeepsPerson(account, key, r.Person, r.Day) {
			continue
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

func dayOf(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// mask removes the person of a request who is no longer kept, and reports whether it did.
func (l *Log) mask(account string, r *Request) bool {
	if r.Person == "" || l.store.KeepsPerson(account, r.KeyID, r.Person, dayOf(r.Time)) {
		return false
	}
	r.Person = ""
	return true
}

// maxErased bounds the rows that are in memory while people are erased. The next time erases more.
const maxErased = 64 * maxWrite

// erasePeople removes people who are no longer kept from the file of the requests.
func (l *Log) erasePeople() error {
	db := l.file.db.Load()
	if db == nil {
		return nil
	}
	var rows []logged
	note := func(account string, k, v []byte) {
		if len(rows) < maxErased && bytes.Contains(v, []byte(`"person":`)) {
			if r, err := decode(k, v); err == nil && l.mask(account, &r) {
				rows = append(rows, logged{account: account, Request: &r})
			}
		}
	}
	err := l.file.guard(db, func() error {
		return db.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
				return b.ForEach(func(k, v []byte) error { note(string(name), k, v); return nil })
			})
		})
	})
	if err != nil {
		return err
	}
	return l.file.write(rows)
}
