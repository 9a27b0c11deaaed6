package queue

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/limits"
)

// Source provides limits and past usage.
type Source interface {
	// LimitsOf returns the limits of an account, and of one of its keys. It is called for
	// each request and must be fast.
	LimitsOf(account, key string) (ofAccount, ofKey limits.UsageLimits)
	// SumsOf returns the usage of ended requests today and in this month, in UTC: of a key, or of
	// all keys of the account if key is "".
	SumsOf(ctx context.Context, account, key string) (day, month limits.Sums, err error)
	// Crossed is called when 80 or 100 percent of a limit per day or month are used; key is "" for a
	// limit of the account.
	Crossed(account, key string, c limits.Crossing)
}

// Need is what a request needs under the limits of its key and account.
type Need struct {
	limits.Cost
	// Wait is how long it may wait until a limit per minute allows it.
	Wait time.Duration
	// UsageOnly means that nothing is reserved: only the states of the limits are wanted.
	UsageOnly bool
}

// Usage returns the states of the limits of a key and its account.
func (q *Queues) Usage(ctx context.Context, account, key string) (limits.Usage, error) {
	permit, err := q.EnterLimited(ctx, account, fair.Client{Key: key}, Need{UsageOnly: true}, Bounds{})
	if err != nil {
		return limits.Usage{}, err
	}
	permit.Leave()
	return permit.usage, nil
}

// EnterLimited waits until the limits of a key and its account allow a request. The caller
// must call [Permit.Settle] when it has ended. It fails with a [limits.Refusal], or as
// [Queues.Enter] does.
func (q *Queues) EnterLimited(ctx context.Context, account string, c fair.Client, need Need, b Bounds) (Permit, error) {
	name := Name{Account: account}
	return q.enter(ctx, Request{Name: name, Key: c.Key, Owner: c.Owner, Bounds: b.orDefaults(), Need: need})
}

// limited has the state of the limits of all accounts.
type limited struct {
	source Source
	logger *slog.Logger

	mu       sync.Mutex
	accounts map[string]*limitedAccount
}

// Limit enables limits of keys and accounts. It must be called before the first EnterLimited.
func (q *Queues) Limit(source Source, logger *slog.Logger) {
	q.limited = &limited{source: source, logger: logger, accounts: make(map[string]*limitedAccount)}
}

// limitedAccount is the state of an account and of its keys that are active.
type limitedAccount struct {
	mu      sync.Mutex
	own     *limitedLevel
	keys    map[string]*limitedLevel
	swept   time.Time                        // last sweep
	waiting map[*limitPermit]context.Context // requests that wait until their reservations are due
}

// limitedLevel is the state of a key or an account.
type limitedLevel struct {
	*limits.Level
	loading sync.Mutex // locked while its sums are loaded; acquired before the account's mu
	line    *line
	read    time.Time // when its sums were loaded
	failed  time.Time // when loading failed
}

// newLevel returns the state of a key or an account without requests.
func (q *Queues) newLevel(of string, name Name) *limitedLevel {
	return &limitedLevel{Level: limits.NewLevel(of, time.Now()), line: &line{name: name, limit: q.limit}}
}

// account returns the state of an account.
func (d *limited) account(q *Queues, id string) *limitedAccount {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.accounts[id]
	if a == nil {
		a = &limitedAccount{
			own: q.newLevel(limits.OfAccount, Name{Account: id}), keys: make(map[string]*limitedLevel), swept: time.Now(),
			waiting: make(map[*limitPermit]context.Context),
		}
		d.accounts[id] = a
	}
	return a
}

// levels returns the levels that a request must pass, with their current limits. The caller
// holds the lock.
func (a *limitedAccount) levels(q *Queues, r *Request, now time.Time) [2]*limitedLevel {
	a.sweep(now)
	k := a.keys[r.Key]
	if k == nil {
		k = q.newLevel(limits.OfKey, Name{Account: r.Account, Key: r.Key})
		a.keys[r.Key] = k
	}
	ofAccount, ofKey := q.limited.source.LimitsOf(r.Account, r.Key)
	levels := [...]*limitedLevel{a.own, k}
	for i, next := range [...]limits.UsageLimits{ofAccount, ofKey} {
		l := levels[i]
		if l.Rested(now, q.restTime) && now.Sub(l.read) > q.restTime {
			l.Forget()
		}
		l.set(next)
	}
	return levels
}

// sweep drops the states of keys without requests, at most once a minute. The caller holds the lock.
func (a *limitedAccount) sweep(now time.Time) {
	const pause = time.Minute
	if now.Sub(a.swept) <= pause {
		return
	}
	for id, l := range a.keys {
		if l.Idle(now) {
			delete(a.keys, id)
		}
	}
	a.swept = now
}

// set sets the limits.
func (l *limitedLevel) set(next limits.UsageLimits) {
	if l.Limits() != next { // requests without limits were not counted
		l.Forget()
	}
	l.Set(next)
}

const (
	// loadPause is the pause after a failure to load sums.
	loadPause = 10 * time.Second
	// maxAge is the maximum age of sums that are shown to a client without limits. Its requests are
	// not counted here.
	maxAge = 10 * time.Second
)

// missing returns the levels whose sums must be loaded.
func (a *limitedAccount) missing(q *Queues, r *Request) []*limitedLevel {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	levels := a.levels(q, r, now)
	counted := levels[0].Limits().Any() || levels[1].Limits().Any()
	return slices.DeleteFunc(levels[:], func(l *limitedLevel) bool {
		needed := l.Limits().HasQuota() || r.UsageOnly && l == levels[1]
		fresh := l.Loaded(now) && (counted || now.Sub(l.read) < maxAge)
		return !needed || fresh || now.Sub(l.failed) <= loadPause
	})
}

// load loads past usage where it is missing. If that fails, requests are counted from now on, and
// loading is tried again later.
func (d *limited) load(ctx context.Context, q *Queues, a *limitedAccount, r *Request) {
	for missing := a.missing(q, r); len(missing) > 0 && ctx.Err() == nil; missing = a.missing(q, r) {
		l := missing[0]
		l.loading.Lock()
		if slices.Contains(a.missing(q, r), l) { // no other request has loaded it, and sweep has not dropped it
			d.loadLevel(ctx, a, l)
		}
		l.loading.Unlock()
	}
}

// loadLevel loads the past usage of a level.
func (d *limited) loadLevel(ctx context.Context, a *limitedAccount, l *limitedLevel) {
	day, month, err := d.source.SumsOf(ctx, l.line.name.Account, l.line.name.Key)
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if err != nil {
		d.logger.Error("failed to read the usage for limits, counting from now on", "account_id", l.line.name.Account,
			"key_id", l.line.name.Key, "error", err)
		l.failed = now
		return
	}
	l.read = now
	l.Load(now, day, month)
}

// LimitsChanged applies changed limits of a key, or of an account if key is "".
func (q *Queues) LimitsChanged(account, key string) {
	q.limited.mu.Lock()
	a := q.limited.accounts[account]
	q.limited.mu.Unlock()
	if a == nil {
		return
	}
	a.mu.Lock()
	l := a.own
	if key != "" {
		l = a.keys[key]
	}
	a.mu.Unlock()
	if l != nil {
		l.line.advance()
	}
}

// RemoveAccount removes the state of an account that was removed. Its limits must be 0 already.
func (q *Queues) RemoveAccount(account string) {
	q.LimitsChanged(account, "")
	q.limited.mu.Lock()
	defer q.limited.mu.Unlock()
	delete(q.limited.accounts, account)
}

// Quotas calls f with the states of the limits per day and month of each key with recent requests that
// this gateway counts, until f returns false.
func (q *Queues) Quotas(f func(key string, states []limits.State) bool) {
	for _, a := range q.limited.all() {
		a.mu.Lock()
		now := time.Now()
		a.sweep(now)
		states := make(map[string][]limits.State, len(a.keys))
		for id, l := range a.keys {
			_, ofKey := q.limited.source.LimitsOf(l.line.name.Account, id)
			if l.set(ofKey); ofKey.HasQuota() { // they may have changed since its last request
				states[id] = slices.DeleteFunc(l.AppendStates(nil, now), limits.State.PerMinute)
			}
		}
		a.mu.Unlock()
		for id, s := range states {
			if !f(id, s) {
				return
			}
		}
	}
}

// all returns the states of all accounts.
func (d *limited) all() []*limitedAccount {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.accounts))
}

// enterLimited is [Queues.EnterLimited] at this gateway.
func (q *Queues) enterLimited(ctx context.Context, r Request) (Permit, error) {
	a := q.limited.account(q, r.Account)
	q.limited.load(ctx, q, a, &r)
	if r.UsageOnly {
		return Permit{usage: a.usage(q, &r), leave: func(limits.Used) {}}, nil
	}
	t, err := a.reserve(ctx, q, &r)
	if err != nil {
		return Permit{}, err
	}
	for i := len(t.levels) - 1; i >= 0; i-- { // the key's line first
		waited, err := t.levels[i].line.enter(ctx, &r)
		if err != nil {
			t.leave(t.levels[i+1:], limits.Used{})
			return Permit{}, t.tooMany(i, err)
		}
		t.waited = t.waited || waited
	}
	return Permit{
		waited: t.waited, usage: limits.Usage{States: t.states},
		leave: func(used limits.Used) { t.leave(t.levels[:], used) },
	}, nil
}

// usage returns the states of the limits, and the usage of the key.
func (a *limitedAccount) usage(q *Queues, r *Request) (u limits.Usage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	levels := a.levels(q, r, now)
	u.States = states(levels, now)
	u.Day, u.Month = levels[1].Ended(now)
	return u
}

// states returns the states of all limits that are set.
func states(levels [2]*limitedLevel, now time.Time) []limits.State {
	return levels[1].AppendStates(levels[0].AppendStates(make([]limits.State, 0, 12), now), now)
}

// limitPermit is the permit of the limits of a key and its account.
type limitPermit struct {
	source      Source
	account     *limitedAccount
	levels      [2]*limitedLevel // of the account and the key
	reservation limits.Reservation
	states      []limits.State // after the reservation
	waited      bool
}

// tooMany returns the refusal for an error of a line.
func (t *limitPermit) tooMany(i int, err error) error {
	if !errors.Is(err, ErrFull) && !errors.Is(err, ErrTimeout) {
		return err
	}
	const retry = 5 * time.Second
	l := t.levels[i].line
	state := limits.State{
		Limit: limits.Concurrency, Of: [...]string{limits.OfAccount, limits.OfKey}[i],
		Max: int64(l.limit(l.name)), Used: l.running.Load(),
	}
	return &limits.Refusal{State: state, WaitMillis: retry.Milliseconds(), States: t.states}
}

// leave leaves the lines of levels, and settles the reservation.
func (t *limitPermit) leave(levels []*limitedLevel, used limits.Used) {
	for _, l := range levels {
		l.line.leave()
	}
	now := time.Now()
	t.account.mu.Lock()
	t.reservation.Settle(now, used)
	ofAccount, ofKey := t.levels[0].Crossed(now), t.levels[1].Crossed(now)
	t.account.mu.Unlock()
	name := t.levels[1].line.name
	for _, c := range ofAccount {
		t.source.Crossed(name.Account, "", c)
	}
	for _, c := range ofKey {
		t.source.Crossed(name.Account, name.Key, c)
	}
}
