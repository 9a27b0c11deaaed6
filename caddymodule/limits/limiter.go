package limits

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// Source provides limits and past usage.
type Source interface {
	// LimitsOf returns the limits of an account, and of one of its keys. It is called for
	// each request and must be fast.
	LimitsOf(account, key string) (ofAccount, ofKey UsageLimits)
	// SumsOf returns the usage of ended requests today and in this month, in UTC: of a key, or of
	// all keys of the account if key is "".
	SumsOf(ctx context.Context, account, key string) (day, month Sums, err error)
	// Crossed is called when 80 or 100 percent of a limit per day or month are used; key is "" for a
	// limit of the account.
	Crossed(account, key string, c Crossing)
}

// Request is a request that needs a permit from the limits of its key and account.
type Request struct {
	Account string
	fair.Client
	Cost
	Length int           // how many requests may wait at a limit of concurrency; negative: none
	Queue  time.Duration // how long this request may wait there
}

// Limiter applies the limits of all accounts. It is safe for concurrent use.
type Limiter struct {
	source Source
	logger *slog.Logger
	edges  fair.Edges

	mu       sync.Mutex
	accounts map[string]*limitedAccount
}

// NewLimiter returns a limiter without state.
func NewLimiter(source Source, logger *slog.Logger) *Limiter {
	return &Limiter{source: source, logger: logger, accounts: make(map[string]*limitedAccount)}
}

// Divide divides the limits per minute and of concurrency among the edges of a cluster. It must be called before the
// first Enter.
func (l *Limiter) Divide(edges fair.Edges) { l.edges = edges }

// Permit is a request's permission to run, by the limits of its key and its account.
type Permit struct {
	account     *limitedAccount
	levels      [2]*limitedLevel // of the account and the key
	reservation Reservation
	states      []State
	waited      bool
}

// Waited reports whether the request had to wait for another one to end.
func (p *Permit) Waited() bool { return p.waited }

// States returns the states of the limits after the request's reservation.
func (p *Permit) States() []State { return p.states }

// Settle releases the permit, and counts the usage of the request. It must be called exactly once.
func (p *Permit) Settle(used Used) { p.leave(p.levels[:], used) }

// limitedAccount is the state of an account and of its keys that are active.
type limitedAccount struct {
	*Limiter
	id string

	mu    sync.Mutex
	own   *limitedLevel
	keys  map[string]*limitedLevel
	swept time.Time // last sweep
}

// limitedLevel is the state of a key or an account.
type limitedLevel struct {
	*Level
	account, key string     // ids; key is "" for an account
	loading      sync.Mutex // locked while its sums are loaded; acquired before the account's mu
	line         *fair.Line // of the limit of concurrency
	loaded       time.Time  // when its sums were loaded
	failed       time.Time  // when loading failed
}

// newLevel returns the state of a key of an account, or of the account if key is "", without requests.
func (l *Limiter) newLevel(account, key string) *limitedLevel {
	of := OfKey
	if key == "" {
		of = OfAccount
	}
	level := &limitedLevel{Level: NewLevel(of, time.Now()), account: account, key: key}
	level.line = fair.NewLine(func() int { return l.concurrency(level) })
	return level
}

// concurrency returns how many requests may run at the same time.
func (l *Limiter) concurrency(level *limitedLevel) int {
	ofAccount, ofKey := l.source.LimitsOf(level.account, level.key)
	if level.key != "" {
		return ofKey.Share(l.edges.Count()).Concurrency
	}
	return ofAccount.Share(l.edges.Count()).Concurrency
}

// account returns the state of an account.
func (l *Limiter) account(id string) *limitedAccount {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[id]
	if a == nil {
		a = &limitedAccount{
			Limiter: l, id: id, own: l.newLevel(id, ""), keys: make(map[string]*limitedLevel), swept: time.Now(),
		}
		l.accounts[id] = a
	}
	return a
}

// levels returns the levels that a request must pass, with their current limits. The caller
// holds the lock.
func (a *limitedAccount) levels(key string, now time.Time) [2]*limitedLevel {
	a.sweep(now)
	k := a.keys[key]
	if k == nil {
		k = a.newLevel(a.id, key)
		a.keys[key] = k
	}
	ofAccount, ofKey := a.source.LimitsOf(a.id, key)
	levels := [...]*limitedLevel{a.own, k}
	for i, next := range [...]UsageLimits{ofAccount, ofKey} {
		levels[i].set(next, a.edges.Count())
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
func (l *limitedLevel) set(next UsageLimits, edges int) {
	if l.Limits() != next { // requests without limits were not counted
		l.Forget()
	}
	l.Set(next, edges)
}

// Changed applies changed limits of a key, or of an account if key is "".
func (l *Limiter) Changed(account, key string) {
	l.mu.Lock()
	a := l.accounts[account]
	l.mu.Unlock()
	if a == nil {
		return
	}
	a.mu.Lock()
	level := a.own
	if key != "" {
		level = a.keys[key]
	}
	a.mu.Unlock()
	if level != nil {
		level.line.Advance()
	}
}

// RemoveAccount removes the state of an account that was removed. Its limits must be 0 already.
func (l *Limiter) RemoveAccount(account string) {
	l.Changed(account, "")
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.accounts, account)
}

// Quotas calls f for each key with recent requests at this gateway, with the states of its limits per day and
// month, until f returns false.
func (l *Limiter) Quotas(f func(key string, states []State) bool) {
	l.mu.Lock()
	accounts := slices.Collect(maps.Values(l.accounts))
	l.mu.Unlock()
	for _, a := range accounts {
		for id, s := range a.quotas() {
			if !f(id, s) {
				return
			}
		}
	}
}

// quotas returns the states of the limits per day and month of each key with recent requests.
func (a *limitedAccount) quotas() map[string][]State {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.sweep(now)
	quotas := make(map[string][]State, len(a.keys))
	for id, l := range a.keys {
		_, ofKey := a.source.LimitsOf(a.id, id)
		if l.set(ofKey, a.edges.Count()); ofKey.HasQuota() { // they may have changed since its last request
			quotas[id] = slices.DeleteFunc(l.AppendStates(nil, now), State.PerMinute)
		}
	}
	return quotas
}

// Enter waits until the limits of concurrency of a key and its account allow a request. Other limits refuse at once.
// The caller must call [Permit.Settle] when the request has ended. Errors are a [Refusal], or the cause of ctx's end.
func (l *Limiter) Enter(ctx context.Context, r Request) (*Permit, error) {
	a := l.account(r.Account)
	a.load(ctx, r.Key, false)
	if l.edges != nil {
		a.renew(r.Key)
	}
	if ctx.Err() != nil { // the sums may be missing
		return nil, context.Cause(ctx)
	}
	p, err := a.reserve(&r)
	if err != nil {
		return nil, err
	}
	for i := len(p.levels) - 1; i >= 0; i-- { // the key's line first
		waited, err := p.levels[i].line.Enter(ctx, r.Client, r.Length, r.Queue)
		if err != nil {
			p.leave(p.levels[i+1:], Used{})
			return nil, p.refusal(i, err)
		}
		p.waited = p.waited || waited
	}
	return p, nil
}

// reserve returns a permit with a reservation, or a refusal.
func (a *limitedAccount) reserve(r *Request) (*Permit, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	levels := a.levels(r.Key, now)
	reservation, refused := Reserve(now, r.Cost, levels[0].Level, levels[1].Level)
	states := states(levels, now)
	if refused != nil {
		refused.States = states
		return nil, refused
	}
	return &Permit{account: a, levels: levels, reservation: reservation, states: states}, nil
}

// Usage returns the states of the limits of a key and its account.
func (l *Limiter) Usage(ctx context.Context, account, key string) (u Usage, err error) {
	a := l.account(account)
	a.load(ctx, key, true)
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	levels := a.levels(key, now)
	u.States = states(levels, now)
	u.Day, u.Month = levels[1].Ended(now)
	return u, context.Cause(ctx)
}

// states returns the states of all limits that are set.
func states(levels [2]*limitedLevel, now time.Time) []State {
	return levels[1].AppendStates(levels[0].AppendStates(make([]State, 0, 12), now), now)
}

// refusal returns the refusal for an error of a line.
func (p *Permit) refusal(i int, err error) error {
	if !errors.Is(err, fair.ErrFull) && !errors.Is(err, fair.ErrTimeout) {
		return err
	}
	const retry = 5 * time.Second
	l := p.levels[i]
	state := l.share(State{
		Limit: Concurrency, Of: [...]string{OfAccount, OfKey}[i],
		Max: int64(p.account.concurrency(l)), Used: l.line.Running(),
	})
	return &Refusal{State: state, WaitMillis: retry.Milliseconds(), States: p.states}
}

// leave leaves the lines of levels, and settles the reservation.
func (p *Permit) leave(levels []*limitedLevel, used Used) {
	for _, l := range levels {
		l.line.Leave()
	}
	now := time.Now()
	p.account.mu.Lock()
	p.reservation.Settle(now, used)
	crossed := [...][]Crossing{p.levels[0].Crossed(now), p.levels[1].Crossed(now)}
	p.account.mu.Unlock()
	for i, l := range p.levels {
		for _, c := range crossed[i] {
			p.account.source.Crossed(l.account, l.key, c)
		}
	}
}
