package activity

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/subscribe"
)

const (
	// keep is how many requests of an account are kept.
	keep = 200
	// keepRefused is how many entries about requests without a valid key are kept in addition:
	// they cannot displace other requests.
	keepRefused = 50
)

// Options configures a Log.
type Options struct {
	// Store is where the log is saved. It is required and must be closed after the log.
	Store *store.Store
	// Logger; nil discards.
	Logger *slog.Logger
}

// Log records requests by account. Its methods are safe for concurrent use.
type Log struct {
	store       *store.Store
	log         *slog.Logger
	subscribers subscribe.List[string] // accounts

	mu       sync.Mutex
	accounts map[string]*account
	usage    map[rowKey]*row

	saving sync.Mutex // held while usage is saved; acquired before mu
	stop   context.CancelFunc
	worker sync.WaitGroup
}

// account holds the activity of one account.
type account struct {
	recent  []Request // a ring once it has keep elements
	oldest  int       // index into recent
	refused []Request // the oldest first
	changed bool      // since recent and refused were saved
}

// New returns a log with the requests that were saved before. It must be closed.
func New(o Options) *Log {
	l := &Log{store: o.Store, log: o.Logger, accounts: make(map[string]*account), usage: make(map[rowKey]*row)}
	l.log = cmp.Or(l.log, slog.New(slog.DiscardHandler))
	for _, a := range l.store.Accounts() {
		saved, err := l.load(a.ID)
		if err != nil {
			l.log.Warn("failed to load the last requests of an account", "account_id", a.ID, "error", err)
		}
		if len(saved) > 0 {
			l.accounts[a.ID] = new(account)
			l.accounts[a.ID].recent, l.accounts[a.ID].refused = split(saved)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.worker.Go(func() { l.run(ctx) })
	return l
}

// load returns the saved requests, the oldest first.
func (l *Log) load(account string) ([]Request, error) {
	data, err := l.store.LoadRecent(context.Background(), account)
	if err != nil {
		return nil, fmt.Errorf("loading the last requests: %w", err)
	}
	if len(data) == 0 {
		return nil, nil
	}
	var recent []Request
	if err := json.Unmarshal(data, &recent); err != nil {
		return nil, fmt.Errorf("reading the last requests: %w", err)
	}
	recent = recent[:min(len(recent), keep+keepRefused)]
	slices.Reverse(recent)
	return recent, nil
}

// split separates requests from those without a valid key.
func split(all []Request) (recent, refused []Request) {
	for _, r := range all {
		if r.Refusals > 0 {
			refused = append(refused, r)
		} else {
			recent = append(recent, r)
		}
	}
	return recent, refused
}

// Record adds a completed request. It does no I/O and holds the lock only briefly.
func (l *Log) Record(id string, r Request) {
	r.clip()
	l.mu.Lock()
	l.account(id).record(&r)
	l.count(id, &r)
	l.mu.Unlock()
	l.subscribers.Now().Call(id)
}

// account returns an account. The caller holds l.mu.
func (l *Log) account(id string) *account {
	a := l.accounts[id]
	if a == nil {
		a = new(account)
		l.accounts[id] = a
	}
	return a
}

// Refuse adds a request without a valid key. Requests of the same minute, key and error are one
// entry with their number: clients without a key decide how many there are. It is no usage.
func (l *Log) Refuse(id string, r Request) {
	r.clip()
	l.mu.Lock()
	first := l.account(id).refuse(&r)
	l.mu.Unlock()
	if first {
		l.subscribers.Now().Call(id)
	}
}

// refuse reports whether it added an entry.
func (a *account) refuse(r *Request) (first bool) {
	a.changed, r.Refusals = true, 1
	for i := range a.refused {
		o := &a.refused[i]
		if o.KeyID == r.KeyID && o.Error == r.Error && o.Time.Truncate(time.Minute).Equal(r.Time.Truncate(time.Minute)) {
			r.Refusals += o.Refusals
			*o = *r
			return false
		}
	}
	a.refused = append(a.refused[max(0, len(a.refused)+1-keepRefused):], *r)
	return true
}

func (a *account) record(r *Request) {
	if len(a.recent) < keep {
		a.recent = append(a.recent, *r)
	} else {
		a.recent[a.oldest] = *r
		a.oldest = (a.oldest + 1) % keep
	}
	a.changed = true
}

// newestFirst returns a copy of the requests, the newest first.
func (a *account) newestFirst() []Request {
	out := make([]Request, 0, len(a.recent)+len(a.refused))
	out = append(append(out, a.recent[a.oldest:]...), a.recent[:a.oldest]...)
	if len(a.refused) > 0 {
		out = append(out, a.refused...)
		slices.SortStableFunc(out, func(a, b Request) int { return a.Time.Compare(b.Time) })
	}
	slices.Reverse(out)
	return out
}

// Recent returns the last 200 requests of an account, the newest first, and the last 50 entries
// about requests without a valid key.
func (l *Log) Recent(account string) []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[account]; a != nil {
		return a.newestFirst()
	}
	return nil
}

// Latest returns what Recent does from the requests through several gateways.
func Latest(requests []Request) []Request {
	recent, refused := split(requests)
	newest := func(a, b Request) int { return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.ID, b.ID)) }
	slices.SortFunc(recent, newest)
	slices.SortFunc(refused, newest)
	recent = append(recent[:min(len(recent), keep)], refused[:min(len(refused), keepRefused)]...)
	slices.SortFunc(recent, newest)
	return recent
}

// Subscribe registers f to be called after each request of any account. No lock is
// held, but the request waits for f, which must return quickly. stop removes f; calls
// in progress still complete.
func (l *Log) Subscribe(f func(account string)) (stop func()) { return l.subscribers.Add(f) }
