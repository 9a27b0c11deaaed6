package activity

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	bolt "go.etcd.io/bbolt"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	// MaxPage is the maximum of [Query.Limit].
	MaxPage = 1000
	// maxMisses bounds the rows that a page decodes in vain. A page then ends early.
	maxMisses = 2000
	// timeDigits is the length of the time in a cursor.
	timeDigits = 11
)

// cursor is the position of a request in the order of all.
func (r *Request) cursor() string { return cursor(r.Time, r.rowID()) }

func cursor(at time.Time, row string) string {
	return fmt.Sprintf("%0*x", timeDigits, max(0, at.UnixMilli())) + row
}

// timeOf returns the time of a cursor.
func timeOf(cursor string) time.Time {
	at, _ := strconv.ParseInt(cursor[:min(timeDigits, len(cursor))], 16, 64) // [file] writes no others
	return time.UnixMilli(at).UTC()
}

// rowID distinguishes requests of a millisecond, also entries of several people.
func (r *Request) rowID() string { return cmp.Or(r.first, r.ID) }

// newestFirst compares requests by their cursors.
func newestFirst(a, b Request) int {
	return cmp.Or(b.Time.Compare(a.Time), strings.Compare(b.rowID(), a.rowID()))
}

const (
	// maxSearchWait bounds how long a search waits for others, of which accounts and callers take turns.
	maxSearchWait = 10 * time.Second
	// maxSearches bounds the waiting searches. At the bound, they displace those of callers with more of them.
	maxSearches = 64
)

// Find returns the requests of an account that a query selects.
func (l *Log) Find(ctx context.Context, account string, q Query) (f Found, err error) {
	f.Requests = []Request{}
	q.Limit = min(max(q.Limit, 1), MaxPage)
	if a, _ := l.store.Account(account); account != store.DefaultAccount && q.From.Before(a.CreatedAt) {
		q.From = a.CreatedAt // older ones are of a removed account with this name
	}
	if q.Keys != nil && len(q.Keys) == 0 {
		return f, nil
	}
	s := newSearch(&q)
	s.mask = func(r *Request) { l.mask(account, r) }
	s.findInMemory(l.unsavedOf(account), &f) // first, so that what is saved meanwhile is not missed
	err = l.search(ctx, account, q.Caller, func(created time.Time, b *bolt.Bucket) {
		if f.Since = created; b != nil {
			s.findInFile(b, &f)
		}
	})
	if err != nil {
		return Found{}, err
	}
	slices.SortFunc(f.Requests, newestFirst)
	// If the page of the file ends early, older requests in memory are for the next page.
	f.Requests = slices.DeleteFunc(f.Requests, func(r Request) bool { return r.cursor() < f.Next })
	if len(f.Requests) > q.Limit {
		f.Requests = f.Requests[:q.Limit]
		f.Next = f.Requests[q.Limit-1].cursor()
	}
	return f, nil
}

// search calls read with the time since which there is a file, and the part of an account in it, which may be nil.
func (l *Log) search(ctx context.Context, account, caller string, read func(since time.Time, b *bolt.Bucket)) error {
	_, err := l.searches.Enter(ctx, fair.Client{Owner: account, Key: caller}, maxSearches, maxSearchWait)
	switch {
	case errors.Is(err, fair.ErrFull), errors.Is(err, fair.ErrTimeout):
		return store.Errorf(store.ErrLimit, "too many searches of requests are waiting; try again")
	case err != nil: // the client has left
		return err
	}
	began := time.Now()
	// Searches leave half of a CPU to requests: the next one begins after a pause as long as this one has taken.
	defer func() { time.AfterFunc(time.Since(began), l.searches.Leave) }()
	db := l.file.db.Load()
	if db == nil {
		return nil
	}
	err = l.file.guard(db, func() error {
		return db.View(func(tx *bolt.Tx) error {
			read(timeOf(string(tx.Bucket(bucketMeta).Get(keyCreated))), tx.Bucket([]byte(account)))
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("reading the activity: %w", err)
	}
	return nil
}

// Recent returns the last requests of an account at this gateway, at most 200.
func (l *Log) Recent(account string) []Request {
	found, err := l.Find(context.Background(), account, Query{Limit: 200})
	if err != nil {
		l.log.Warn("failed to read the last requests of an account", "account_id", account, "error", err)
	}
	return found.Requests
}

// search is a query while it is answered.
type search struct {
	q       *Query
	seen    map[string]bool // cursors of requests that are in memory
	keys    []string        // sorted; nil: all
	members [][]byte        // what the JSON of a row contains
	text    []byte          // what a row contains in lower case
	buffer  []byte
	mask    func(*Request) // removes a person who is no longer kept
}

func newSearch(q *Query) *search {
	s := &search{q: q, seen: make(map[string]bool), keys: slices.Clone(q.Keys)}
	slices.Sort(s.keys)
	for name, value := range map[string]string{"deployment": q.Model, "connector_id": q.Connector} {
		if value != "" {
			quoted, _ := jsontext.AppendQuote([]byte(`"`+name+`":`), strings.ToValidUTF8(value, "\ufffd"))
			s.members = append(s.members, quoted)
		}
	}
	// JSON may escape other characters, and the case of some depends on their language.
	plain := func(r rune) bool { return r >= ' ' && r <= '~' && r != '"' && r != '\\' }
	for part := range strings.FieldsFuncSeq(strings.ToLower(q.Text), func(r rune) bool { return !plain(r) }) {
		if len(part) > len(s.text) {
			s.text = []byte(part)
		}
	}
	return s
}

// findInMemory finds requests that are not yet in the file.
func (s *search) findInMemory(rows []*Request, f *Found) {
	for _, r := range rows {
		at := r.cursor()
		s.seen[at] = true
		if r.Person != "" {
			r = new(*r)
			s.mask(r)
		}
		if s.q.Matches(r) && (s.q.Before == "" || at < s.q.Before) {
			f.Requests = append(f.Requests, *r)
		}
	}
}

// findInFile finds the rows of an account's bucket.
func (s *search) findInFile(b *bolt.Bucket, f *Found) {
	if removed := b.Get(keyRemoved); removed != nil {
		f.Since = timeOf(string(removed))
	}
	c, end, first, misses, found := b.Cursor(), string(keyRemoved), cursor(s.q.From, ""), 0, 0
	if !s.q.To.IsZero() {
		end = cursor(s.q.To, "")
	}
	if s.q.Before != "" {
		end = min(end, s.q.Before)
	}
	last := c.Prev
	if k, _ := c.Seek([]byte(end)); k == nil {
		last = c.Last
	}
	for k, v := last(); k != nil && string(k) >= first; k, v = c.Prev() {
		if !s.mayMatch(k, v) || s.seen[string(k)] {
			continue
		}
		r, err := decode(k, v)
		s.mask(&r)
		switch {
		case err != nil || !s.q.Matches(&r):
			if misses++; misses == maxMisses {
				f.Next = string(k)
				return
			}
		case found == s.q.Limit:
			f.Next = f.Requests[len(f.Requests)-1].cursor()
			return
		default:
			f.Requests = append(f.Requests, r)
			found++
		}
	}
}

// mayMatch reports whether a row may match. It decodes nothing: most rows that a rare filter reads do not match.
func (s *search) mayMatch(k, v []byte) bool {
	if s.q.Outcome != "" && v[0] != s.q.Outcome[0] {
		return false
	}
	if kind := s.q.Kind; kind != StreamCut && !bytes.Contains(v, []byte(kind)) {
		return false
	}
	if id := []byte(s.q.ID); !bytes.HasSuffix(k, id) && !bytes.Contains(v, id) {
		return false
	}
	for _, member := range s.members {
		if !bytes.Contains(v, member) {
			return false
		}
	}
	if s.keys != nil {
		_, rest, _ := bytes.Cut(v, []byte(`"key_id":"`))
		id, _, _ := bytes.Cut(rest, []byte(`"`))
		if _, ok := slices.BinarySearch(s.keys, cmp.Or(string(id), ConsoleKey)); !ok {
			return false
		}
	}
	if s.text == nil {
		return true
	}
	s.buffer = append(append(s.buffer[:0], k...), v...)
	for i, c := range s.buffer {
		if c >= 'A' && c <= 'Z' {
			s.buffer[i] += 'a' - 'A'
		}
	}
	return bytes.Contains(s.buffer, s.text)
}
