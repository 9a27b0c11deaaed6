package activity

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	bolt "go.etcd.io/bbolt"

	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	// MaxPage is the maximum of [Query.Limit].
	MaxPage = 1000
	// maxMisses bounds the rows that a page decodes in vain. A page then ends early.
	maxMisses = 5000
	// timeDigits is the length of the time in a cursor.
	timeDigits = 11
)

// cursor is the place of a request in the order of all: its time, then its id.
func (r *Request) cursor() string { return cursor(r.Time, r.ID) }

func cursor(at time.Time, id string) string {
	return fmt.Sprintf("%0*x", timeDigits, max(0, at.UnixMilli())) + id
}

func newestFirst(a, b Request) int { return strings.Compare(b.cursor(), a.cursor()) }

// Find returns the requests of an account that a query selects.
func (l *Log) Find(account string, q Query) (Found, error) {
	q.Limit = min(max(q.Limit, 1), MaxPage)
	if l.file.db.Load() == nil {
		l.file.saving.Lock()
		_ = store.Guard(l.file.path, l.file.open) // the next save tells why it fails
		l.file.saving.Unlock()
	}
	unsaved, stale := l.unsaved.find(l, account, &q)
	s := newSearch(&q, stale)
	read := false
	err := l.file.use(func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error {
			b := tx.Bucket([]byte(account))
			read = true
			s.since(tx.Bucket(bucketMeta), b)
			s.merge(b, unsaved)
			return nil
		})
	})
	if err != nil {
		return Found{}, fmt.Errorf("reading the activity: %w", err)
	}
	if !read {
		s.merge(nil, unsaved)
	}
	return s.found, nil
}

// Merge merges what several gateways have found.
func Merge(q Query, all []Found) Found {
	f := Found{Requests: []Request{}}
	for _, part := range all {
		f.Requests = append(f.Requests, part.Requests...)
		f.Next = max(f.Next, part.Next)
		if part.Since.After(f.Since) {
			f.Since = part.Since
		}
	}
	slices.SortFunc(f.Requests, newestFirst)
	// Where a page ends early, older requests of other gateways wait for the next page.
	f.Requests = slices.DeleteFunc(f.Requests, func(r Request) bool { return r.cursor() < f.Next })
	if len(f.Requests) > q.Limit {
		f.Requests = f.Requests[:q.Limit]
		f.Next = f.Requests[q.Limit-1].cursor()
	}
	return f
}

// Recent returns the last requests of an account at this gateway, at most 200.
func (l *Log) Recent(account string) []Request {
	found, err := l.Find(account, Query{Limit: 200})
	if err != nil {
		l.log.Warn("failed to read the last requests of an account", "account_id", account, "error", err)
	}
	return found.Requests
}

// search is a query while it is answered.
type search struct {
	q            *Query
	lower, upper string          // cursors; upper is "" for none
	stale        map[string]bool // cursors of rows that are not read
	members      [][]byte        // what the JSON of a row contains
	keys         map[string]bool // nil: all
	text         []byte
	buffer       []byte
	misses       int
	found        Found
}

func newSearch(q *Query, stale map[string]bool) *search {
	s := &search{q: q, stale: stale, lower: cursor(q.From, ""), upper: q.Before, found: Found{Requests: []Request{}}}
	if to := cursor(q.To, ""); !q.To.IsZero() && (s.upper == "" || to < s.upper) {
		s.upper = to
	}
	member := func(name, value string) {
		if value != "" {
			s.members = append(s.members, append([]byte(`"`+name+`":`), quote(value)...))
		}
	}
	member("deployment", q.Model)
	member("connector_id", q.Connector)
	member("error_class", map[Outcome]string{Refused: PolicyError, Client: CallerError}[q.Outcome])
	if q.Keys != nil {
		s.keys = make(map[string]bool, len(q.Keys))
		for _, id := range q.Keys {
			s.keys[id] = true
		}
	}
	if text := quote(strings.ToLower(q.Text)); q.Text != "" {
		s.text = text[1 : len(text)-1]
	}
	return s
}

// quote returns a string in JSON, as in the file.
func quote(text string) []byte {
	quoted, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\ufffd"))
	return quoted
}

// since sets the time from which on no request is missing.
func (s *search) since(meta, b *bolt.Bucket) {
	since, removed := string(meta.Get(keyCreated)), ""
	for _, class := range s.q.classes() {
		if b == nil || class == classFailed && s.q.Outcome != Failed {
			continue
		}
		removed = max(removed, string(b.Get(mark(class))))
		if k, _ := b.Cursor().Seek(key(class, "")); k != nil && int(k[0]) == class {
			since = min(since, string(k[1:]))
		}
	}
	s.found.Since = timeOf(cmp.Or(removed, since))
}

// timeOf returns the time of a cursor.
func timeOf(cursor string) time.Time {
	at, err := strconv.ParseInt(cursor[:min(timeDigits, len(cursor))], 16, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(at).UTC()
}

// classes returns the classes that a query reads.
func (q *Query) classes() []int {
	switch q.Outcome {
	case Answered:
		return []int{classAnswered}
	case Failed:
		return []int{classFailed}
	case Refused, Client:
		return []int{classCounted}
	}
	return []int{classAnswered, classCounted, classFailed}
}

// reader reads the rows of a class backwards.
type reader struct {
	*bolt.Cursor
	class byte
	lower string
	k, v  []byte // of the present row; k is nil at the end
}

func (r *reader) set(k, v []byte) {
	if r.k, r.v = k, v; k != nil && (k[0] != r.class || string(k[1:]) < r.lower) {
		r.k = nil
	}
}

func (s *search) readers(b *bolt.Bucket) (readers []*reader) {
	if b == nil {
		return nil
	}
	for _, class := range s.q.classes() {
		r := &reader{Cursor: b.Cursor(), class: byte(class), lower: s.lower}
		end := key(class, s.upper)
		if s.upper == "" {
			end = key(class+1, "")
		}
		if k, _ := r.Seek(end); k == nil {
			r.set(r.Last())
		} else {
			r.set(r.Prev())
		}
		readers = append(readers, r)
	}
	return readers
}

// merge fills the page with rows and with unsaved requests.
func (s *search) merge(b *bolt.Bucket, unsaved []Request) {
	readers := s.readers(b)
	for {
		head, next := "", (*reader)(nil)
		if len(unsaved) > 0 {
			head = unsaved[0].cursor()
		}
		for _, r := range readers {
			if r.k != nil && (next == nil || bytes.Compare(r.k[1:], next.k[1:]) > 0) {
				next = r
			}
		}
		switch {
		case next == nil && head == "":
			return
		case next == nil || head >= string(next.k[1:]):
			if !s.take(unsaved[0]) {
				return
			}
			unsaved = unsaved[1:]
			s.stale[head] = true // it may just have been written
			continue
		}
		if !s.stale[string(next.k[1:])] && s.may(next.k, next.v) && !s.row(next.k, next.v) {
			return
		}
		next.set(next.Prev())
	}
}

// take adds a request to the page, unless it is full.
func (s *search) take(r Request) bool {
	if n := len(s.found.Requests); n == s.q.Limit {
		s.found.Next = s.found.Requests[n-1].cursor()
		return false
	}
	s.found.Requests = append(s.found.Requests, r)
	return true
}

// row adds a row to the page if it matches. It reports whether the page may get more.
func (s *search) row(k, v []byte) bool {
	var r Request
	if err := json.Unmarshal(v, &r); err == nil {
		if r.ID, r.Time = string(k[1+timeDigits:]), timeOf(string(k[1:])); s.q.Matches(&r) {
			return s.take(r)
		}
	}
	if s.misses++; s.misses < maxMisses {
		return true
	}
	s.found.Next = string(k[1:])
	return false
}

// may reports whether a row may match. It decodes nothing: most rows that a rare filter reads do not match.
func (s *search) may(k, v []byte) bool {
	id := k[min(len(k), 1+timeDigits):]
	if s.q.ID != "" && s.q.ID != string(id) {
		return false
	}
	for _, member := range s.members {
		if !bytes.Contains(v, member) {
			return false
		}
	}
	if s.keys != nil {
		_, rest, _ := bytes.Cut(v, []byte(`"key_id":"`))
		key, _, _ := bytes.Cut(rest, []byte(`"`))
		if len(key) > 0 && !s.keys[string(key)] || len(key) == 0 && !s.keys[ConsoleKey] {
			return false
		}
	}
	if s.text == nil {
		return true
	}
	s.buffer = append(append(append(s.buffer[:0], id...), '\n'), v...)
	return bytes.Contains(bytes.ToLower(s.buffer), s.text)
}
