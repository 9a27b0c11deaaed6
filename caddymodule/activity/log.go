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

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/subscribe"
)

// keep is how many requests of an account are kept.
const keep = 200

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
	changed bool      // since recent was saved
}

// New returns a log with the requests that were saved before. It must be closed.
func New(o Options) *Log {
	l := &Log{store: o.Store, log: o.Logger, accounts: make(map[string]*account), usage: make(map[rowKey]*row)}
	l.log = cmp.Or(l.log, slog.New(slog.DiscardHandler))
	for _, a := range l.store.Accounts() {
		recent, err := l.load(a.ID)
		if err != nil {
			l.log.Warn("failed to load the last requests of an account", "account_id", a.ID, "error", err)
		}
		if len(recent) > 0 {
			l.accounts[a.ID] = &account{recent: recent}
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
	recent = recent[:min(len(recent), keep)]
	slices.Reverse(recent)
	return recent, nil
}

// Record adds a completed request. It does no I/O and holds the lock only briefly.
func (l *Log) Record(id string, r Request) {
	r.clip()
	l.mu.Lock()
	a := l.accounts[id]
	if a == nil {
		a = new(account)
		l.accounts[id] = a
	}
	a.record(&r)
	l.count(id, &r)
	l.mu.Unlock()
	l.subscribers.Now().Call(id)
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
	out := make([]Request, 0, len(a.recent))
	out = append(append(out, a.recent[a.oldest:]...), a.recent[:a.oldest]...)
	slices.Reverse(out)
	return out
}

// Recent returns the last 200 requests of an account, the newest first.
func (l *Log) Recent(account string) []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[account]; a != nil {
		return a.newestFirst()
	}
	return nil
}

// Latest returns the last 200 of the requests through several gateways, the newest first.
func Latest(requests []Request) []Request {
	slices.SortFunc(requests, func(a, b Request) int { return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.ID, b.ID)) })
	return requests[:min(len(requests), keep)]
}

// Subscribe registers f to be called after each request of any account. No lock is
// held, but the request waits for f, which must return quickly. stop removes f; calls
// in progress still complete.
func (l *Log) Subscribe(f func(account string)) (stop func()) { return l.subscribers.Add(f) }
