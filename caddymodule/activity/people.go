package activity

import (
	"bytes"
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// peopleKey identifies the people behind a key on a day.
type peopleKey struct{ account, key, day string }

// keyPeople are people with a name of their own, OtherPeople, and what they have used on the day.
type keyPeople struct {
	mu   sync.Mutex
	read time.Time // from the store; zero: not yet
	sums map[string]limits.Sums
}

// peopleAge is how old sums of people may be. Other gateways publish theirs as often.
const peopleAge = 30 * time.Second

// maxErased bounds the rows that are in memory while people are erased.
const maxErased = 8 * maxWrite

// today returns the current day in UTC.
func today() string { return time.Now().UTC().Format(time.DateOnly) }

// peopleOf returns the people behind a key today, locked. It reads them from the store if they are older than age.
func (l *Log) peopleOf(ctx context.Context, account, key string, age time.Duration) (*keyPeople, error) {
	k := peopleKey{account, key, today()}
	l.mu.Lock()
	p := l.people[k]
	if p == nil {
		p = &keyPeople{sums: map[string]limits.Sums{store.OtherPeople: {}}}
		l.people[k] = p
	}
	l.mu.Unlock()
	p.mu.Lock()
	if time.Since(p.read) < age {
		return p, nil
	}
	p.read = time.Now() // even if it fails, not for each request
	sums := make(map[string]limits.Sums)
	err := l.EachPerson(context.WithoutCancel(ctx), account, key, k.day, k.day, func(r store.UsageRow) error {
		if sum, ok := sums[r.Person]; ok || len(sums) < 2*store.MaxPeople { // of several gateways
			sum.Add(r.Sums())
			sums[r.Person] = sum
		}
		return nil
	})
	maps.Copy(p.sums, sums)
	return p, err
}

// Person returns the name for which a request of a person behind a key counts today: its own, or OtherPeople.
func (l *Log) Person(ctx context.Context, account, key, name string) string {
	if name == "" || !l.store.KeepsPerson(account, key, name, today()) {
		return store.OtherPeople
	}
	p, err := l.peopleOf(ctx, account, key, 24*time.Hour)
	defer p.mu.Unlock()
	if err != nil {
		l.log.Warn("failed to read the people of a key", "key_id", key, "error", err)
	}
	if _, ok := p.sums[name]; !ok {
		if len(p.sums) > store.MaxPeople {
			return store.OtherPeople
		}
		p.sums[strings.Clone(name)] = limits.Sums{} // without the rest of a header
	}
	return name
}

// PersonSums returns what a person behind a key has used today.
func (l *Log) PersonSums(ctx context.Context, account, key, name string) (limits.Sums, error) {
	p, err := l.peopleOf(ctx, account, key, peopleAge)
	defer p.mu.Unlock()
	return p.sums[name], err
}

// dropPeople drops the people of former days. The caller holds l.mu.
func (l *Log) dropPeople() {
	maps.DeleteFunc(l.people, func(k peopleKey, _ *keyPeople) bool { return k.day < today() })
}

// EachPerson is [Log.EachUsage] for the people behind a key.
func (l *Log) EachPerson(ctx context.Context, account, key, from, to string, f func(store.UsageRow) error) error {
	return l.eachUsage(ctx, l.store.EachPerson, true, account, key, from, to, func(r store.UsageRow) error {
		if !l.store.KeepsPerson(account, r.Key, r.Person, r.Day) { // it is not saved
			return nil
		}
		return f(r)
	})
}

// mask removes the person of a request who is no longer kept, and reports whether it did.
func (l *Log) mask(account string, r *Request) bool {
	if r.Person == "" || l.store.KeepsPerson(account, r.KeyID, r.Person, r.Time.UTC().Format(time.DateOnly)) {
		return false
	}
	r.Person = ""
	return true
}

// ErasePeople removes people who are no longer kept from the file of the requests.
func (l *Log) ErasePeople() error {
	for range maxBytes / maxErased {
		rows, err := l.file.masked()
		if err == nil && len(rows) > 0 {
			err = l.file.write(rows)
		}
		if err != nil || len(rows) < maxErased {
			return err
		}
	}
	return nil
}

// masked returns up to maxErased rows with people who are no longer kept.
func (f *file) masked() (rows []logged, err error) {
	db := f.db.Load()
	if db == nil {
		return nil, nil
	}
	read := func(account string, b *bolt.Bucket) {
		c := b.Cursor()
		for k, v := c.First(); k != nil && len(rows) < maxErased; k, v = c.Next() {
			if !bytes.Contains(v, []byte(`"person":`)) {
				continue
			}
			if r, err := decode(k, v); err == nil && f.mask(account, &r) {
				rows = append(rows, logged{account: account, Request: &r})
			}
		}
	}
	err = f.guard(db, func() error {
		return db.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
				read(string(name), b)
				return nil
			})
		})
	})
	return rows, err
}
