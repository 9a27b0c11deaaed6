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

// keep is how many requests of an account are kept.
const keep = 200

// maxDays is the maximum number of days that Days returns.
const maxDays = 366

// Options configures a Log.
type Options struct {
	// Store is where the log is saved. It is required and must be closed after the log.
	Store *store.Store
	// Logger; nil discards.
	Logger *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Log records requests by account. Its methods are safe for concurrent use.
type Log struct {
	store       *store.Store
	log         *slog.Logger
	now         func() time.Time
	subscribers subscribe.List[string] // accounts

	mu       sync.Mutex
	accounts map[string]*account

	saving sync.Mutex // held while sums are saved; acquired before mu
	stop   context.CancelFunc
	worker sync.WaitGroup
}

// account holds the activity of one account.
type account struct {
	recent  []Request      // a ring once it has keep elements
	oldest  int            // index into recent
	changed bool           // since recent was saved
	sums    map[int64]*sum // by day: today's, and those with unsaved requests
}

// sum is the usage on a day through this gateway.
type sum struct {
	saved   *store.UsageDay // nil: not yet read from the store
	unsaved store.UsageDay  // requests since, without account and day
}

// New returns a log with the requests that were saved before. It must be closed.
func New(o Options) *Log {
	l := &Log{store: o.Store, log: o.Logger, now: o.Now, accounts: make(map[string]*account)}
	l.log = cmp.Or(l.log, slog.New(slog.DiscardHandler))
	if l.now == nil {
		l.now = time.Now
	}
	for _, a := range l.store.Accounts() {
		recent, err := l.load(a.ID)
		if err != nil {
			l.log.Warn("failed to load the last requests of an account", "account_id", a.ID, "error", err)
		}
		if len(recent) > 0 {
			l.accounts[a.ID] = &account{recent: recent, sums: make(map[int64]*sum)}
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
		a = &account{sums: make(map[int64]*sum)}
		l.accounts[id] = a
	}
	a.record(&r)
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
	u := store.UsageDay{Requests: 1, InputTokens: int64(r.InputTokens), OutputTokens: int64(r.OutputTokens)}
	if r.Status >= 400 {
		u.Errors = 1
	}
	day := dayOf(r.Time)
	if a.sums[day] == nil {
		a.sums[day] = new(sum)
	}
	a.sums[day].unsaved.Add(u)
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

const daySeconds = 24 * 60 * 60

// dayOf returns the number of days since 1970 in UTC.
func dayOf(t time.Time) int64 {
	seconds := t.Unix()
	if seconds < 0 {
		return 0
	}
	return seconds / daySeconds
}

// dayName returns a day in the format of records.
func dayName(day int64) string {
	return time.Unix(day*daySeconds, 0).UTC().Format(time.DateOnly)
}

// Report is what a gateway of a cluster knows alone about an account.
type Report struct {
	Requests []Request        `json:"requests"` // as Recent returns them
	Days     []store.UsageDay `json:"days"`     // yesterday and today, through this gateway
}

// Report returns what the other gateways of the cluster cannot know.
func (l *Log) Report(ctx context.Context, account string) (Report, error) {
	l.saving.Lock()
	defer l.saving.Unlock()
	r := Report{Requests: l.Recent(account)}
	today := dayOf(l.now())
	for day := today - 1; day <= today; day++ {
		d, err := l.store.OwnUsage(ctx, account, dayName(day))
		if err != nil {
			return Report{}, fmt.Errorf("reading the usage by day: %w", err)
		}
		l.mu.Lock()
		if a := l.accounts[account]; a != nil && a.sums[day] != nil {
			d.Add(a.sums[day].unsaved)
		}
		l.mu.Unlock()
		if d.Requests > 0 {
			r.Days = append(r.Days, d)
		}
	}
	return r, nil
}

// Days returns the sums of the last n days, at most 366, ending with today. Days
// without requests have zeros. newer are days of other gateways: see [store.Store.Usage].
func (l *Log) Days(ctx context.Context, account string, n int, newer map[string][]store.UsageDay) ([]store.UsageDay, error) {
	n = min(max(n, 1), maxDays)
	first := dayOf(l.now()) - int64(n) + 1
	l.saving.Lock()
	defer l.saving.Unlock()
	saved, err := l.store.Usage(ctx, account, dayName(first), newer)
	if err != nil {
		return nil, fmt.Errorf("reading the usage by day: %w", err)
	}
	sums := make(map[string]store.UsageDay, len(saved))
	for _, d := range saved {
		sums[d.Day] = d
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	days := make([]store.UsageDay, n)
	for i := range days {
		day := first + int64(i)
		days[i] = store.UsageDay{Account: account, Day: dayName(day)}
		days[i].Add(sums[days[i].Day])
		if a := l.accounts[account]; a != nil {
			if unsaved := a.sums[day]; unsaved != nil {
				days[i].Add(unsaved.unsaved)
			}
		}
	}
	return days, nil
}
