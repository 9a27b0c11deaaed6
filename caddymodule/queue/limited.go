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

// Source tells the limits of keys and accounts, and what was used before.
type Source interface {
	// LimitsOf returns the limits of an account, and of one of its keys. It is called for
	// each request and must be fast.
	LimitsOf(account, key string) (ofAccount, ofKey limits.UsageLimits)
	// SumsOf returns what requests that have ended have used today and in this month, in UTC:
	// those of a key, or of all keys of the account if key is "".
	SumsOf(ctx context.Context, account, key string) (day, month limits.Sums, err error)
	// Crossed is called when most or all of a limit of a day or month is used; key is "" for one
	// of the account.
	Crossed(account, key string, c limits.Crossing)
}

// Need is what a request needs under the limits of its key and account.
type Need struct {
	limits.Cost
	// Wait is how long it may wait until a limit per minute allows it.
	Wait time.Duration
	// Look means that it only asks for the states of the limits.
	Look bool
}

// LookAt returns what the limits of a key and its account leave.
func (q *Queues) LookAt(ctx context.Context, account, key string) (limits.Look, error) {
	place, err := q.EnterLimited(ctx, account, fair.Client{Key: key}, Need{Look: true}, Bounds{})
	if err != nil {
		return limits.Look{}, err
	}
	place.Leave()
	return place.look, nil
}

// EnterLimited waits until the limits of a key and its account allow a request. The caller
// must call [Place.Settle] when it has ended. It fails with a [limits.Refusal], or as
// [Queues.Enter] does.
func (q *Queues) EnterLimited(ctx context.Context, account string, c fair.Client, need Need, b Bounds) (Place, error) {
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

// Limit has the queues apply the limits of keys and accounts. It must be called before the
// first EnterLimited.
func (q *Queues) Limit(source Source, logger *slog.Logger) {
	q.limited = &limited{source: source, logger: logger, accounts: make(map[string]*limitedAccount)}
}

// limitedAccount is the state of an account and of its keys that are active.
type limitedAccount struct {
	loading sync.Mutex // held while sums are loaded; acquired before mu

	mu      sync.Mutex
	own     *limitedLevel
	keys    map[string]*limitedLevel
	swept   time.Time
	waiting map[*ticket]context.Context // requests whose reservations are not yet due
}

// limitedLevel is the state of a key or an account.
type limitedLevel struct {
	*limits.Level
	line   *line
	read   time.Time // when its sums were loaded
	failed time.Time // when they could not be
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
			waiting: make(map[*ticket]context.Context),
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
	of := [...]*limitedLevel{a.own, k}
	for i, next := range [...]limits.UsageLimits{ofAccount, ofKey} {
		l := of[i]
		if l.Rested(now, q.restTime) && now.Sub(l.read) > q.restTime {
			l.Forget()
		}
		l.set(next)
	}
	return of
}

// sweep drops the states of keys without requests, now and then. The caller holds the lock.
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
	// loadPause is the time between two tries to load sums.
	loadPause = 10 * time.Second
	// lookAge is how old the sums may be of which a client asks that has no limits. Its
	// requests are not counted here.
	lookAge = 10 * time.Second
)

// missing returns the keys whose sums must be loaded; "" stands for the account.
func (a *limitedAccount) missing(q *Queues, r *Request) (keys []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	of := a.levels(q, r, now)
	counted := of[0].Limits().Any() || of[1].Limits().Any()
	for i, l := range of {
		needed := l.Limits().HasQuota() || r.Look && i == 1
		fresh := l.Loaded(now) && (counted || now.Sub(l.read) < lookAge)
		if needed && !fresh && now.Sub(l.failed) > loadPause {
			keys = append(keys, [...]string{"", r.Key}[i])
		}
	}
	return keys
}

// load loads what was used before, where it is needed. If that fails, requests are counted
// from now on, and loading is tried again after a while.
func (d *limited) load(ctx context.Context, q *Queues, a *limitedAccount, r *Request) {
	if len(a.missing(q, r)) == 0 {
		return
	}
	a.loading.Lock()
	defer a.loading.Unlock()
	for _, key := range a.missing(q, r) {
		day, month, err := d.source.SumsOf(ctx, r.Account, key)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			d.logger.Error("failed to read the usage for limits, counting from now on", "account_id", r.Account, "key_id", key,
				"error", err)
		}
		a.loaded(q, r, key, day, month, err == nil)
	}
}

func (a *limitedAccount) loaded(q *Queues, r *Request, key string, day, month limits.Sums, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	of := a.levels(q, r, now)
	l := of[0]
	if key != "" {
		l = of[1]
	}
	if !ok {
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

// RemoveAccount removes the state of an account that has been removed, and whose limits are now 0.
func (q *Queues) RemoveAccount(account string) {
	q.LimitsChanged(account, "")
	q.limited.mu.Lock()
	defer q.limited.mu.Unlock()
	delete(q.limited.accounts, account)
}

// Quotas calls f with the states of the limits per day and month of each key that this gateway
// counts and that has had requests lately, until f returns false.
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

// enterLimited is [Queues.EnterLimited] for this gateway alone.
func (q *Queues) enterLimited(ctx context.Context, r Request) (Place, error) {
	a := q.limited.account(q, r.Account)
	q.limited.load(ctx, q, a, &r)
	if r.Look {
		return Place{look: a.look(q, &r), leave: func(limits.Used) {}}, nil
	}
	t, err := a.reserve(ctx, q, &r)
	if err != nil {
		return Place{}, err
	}
	for i := len(t.of) - 1; i >= 0; i-- { // the key's line first
		waited, err := t.of[i].line.enter(ctx, &r)
		if err != nil {
			t.leave(t.of[i+1:], limits.Used{})
			return Place{}, t.tooMany(i, err)
		}
		t.waited = t.waited || waited
	}
	return Place{waited: t.waited, look: limits.Look{States: t.states},
		leave: func(used limits.Used) { t.leave(t.of[:], used) }}, nil
}

// look returns what the limits leave.
func (a *limitedAccount) look(q *Queues, r *Request) (l limits.Look) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	of := a.levels(q, r, now)
	l.States = states(of, now)
	l.Day, l.Month = of[1].Ended(now)
	return l
}

// states returns the states of all limits that are set.
func states(of [2]*limitedLevel, now time.Time) []limits.State {
	return of[1].AppendStates(of[0].AppendStates(make([]limits.State, 0, 12), now), now)
}

// ticket is what a request has reserved.
type ticket struct {
	source      Source
	account     *limitedAccount
	of          [2]*limitedLevel
	reservation limits.Reservation
	states      []limits.State // then
	waited      bool
}

// tooMany returns the refusal for an error of a line.
func (t *ticket) tooMany(i int, err error) error {
	if !errors.Is(err, ErrFull) && !errors.Is(err, ErrTimeout) {
		return err
	}
	const retry = 5 * time.Second
	l := t.of[i].line
	state := limits.State{Limit: limits.Concurrency, Of: [...]string{limits.OfAccount, limits.OfKey}[i],
		Max: int64(l.limit(l.name)), Used: l.running.Load()}
	return &limits.Refusal{State: state, WaitMillis: retry.Milliseconds(), States: t.states}
}

// leave leaves lines, and settles.
func (t *ticket) leave(lines []*limitedLevel, used limits.Used) {
	for _, l := range lines {
		l.line.leave()
	}
	now := time.Now()
	t.account.mu.Lock()
	t.reservation.Settle(now, used)
	ofAccount, ofKey := t.of[0].Crossed(now), t.of[1].Crossed(now)
	t.account.mu.Unlock()
	name := t.of[1].line.name
	for _, c := range ofAccount {
		t.source.Crossed(name.Account, "", c)
	}
	for _, c := range ofKey {
		t.source.Crossed(name.Account, name.Key, c)
	}
}
