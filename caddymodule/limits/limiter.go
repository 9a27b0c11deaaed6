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
	// LimitsOf returns the limits of a subject. It is called for each request and must be fast.
	LimitsOf(account string, of Subject) UsageLimits
	// SumsOf returns the usage of a subject's ended requests today and in this month, in UTC.
	SumsOf(ctx context.Context, account string, of Subject) (day, month Sums, err error)
	// Crossed is called when 80 or 100 percent of a limit per day or month are used.
	Crossed(account string, c Crossing)
}

// Request is a request that needs a permit from the limits of all its levels.
type Request struct {
	Account string
	Levels  []Subject // whose limits hold, from the account to the key
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

// Permit is a request's permission to run, by the limits of all its levels.
type Permit struct {
	account     *limitedAccount
	levels      []*limitedLevel
	usual       [UsualLevels]*limitedLevel // memory of levels
	reservation Reservation
	states      []State
	waited      bool
}

// Waited reports whether the request had to wait for another one to end.
func (p *Permit) Waited() bool { return p.waited }

// States returns the states of the limits after the request's reservation.
func (p *Permit) States() []State { return p.states }

// Settle releases the permit, and counts the usage of the request. It must be called exactly once.
func (p *Permit) Settle(used Used) { p.leave(p.levels, used) }

// limitedAccount is the state of an account and of its subjects that are active.
type limitedAccount struct {
	*Limiter
	id string

	mu     sync.Mutex
	active map[Subject]*limitedLevel
	swept  time.Time // last sweep
}

// limitedLevel is the state of a subject.
type limitedLevel struct {
	*Level
	loading sync.Mutex // locked while its sums are loaded; acquired before the account's mu
	line    *fair.Line // of the limit of concurrency
	loaded  time.Time  // when its sums were loaded
	failed  time.Time  // when loading failed
}

// concurrency returns how many requests of a subject may run at the same time.
func (a *limitedAccount) concurrency(of Subject) int {
	return a.source.LimitsOf(a.id, of).Share(a.edges.Count()).Concurrency
}

// account returns the state of an account.
func (l *Limiter) account(id string) *limitedAccount {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[id]
	if a == nil {
		a = &limitedAccount{Limiter: l, id: id, active: make(map[Subject]*limitedLevel), swept: time.Now()}
		l.accounts[id] = a
	}
	return a
}

// levels appends the states of subjects to levels, with their current limits. The caller holds the lock.
func (a *limitedAccount) levels(levels []*limitedLevel, subjects []Subject, now time.Time) []*limitedLevel {
	a.sweep(now)
	for _, of := range subjects {
		l := a.active[of]
		if l == nil {
			l = &limitedLevel{Level: NewLevel(of, now), line: fair.NewLine(func() int { return a.concurrency(of) })}
			a.active[of] = l
		}
		l.set(a.source.LimitsOf(a.id, of), a.edges.Count())
		levels = append(levels, l)
	}
	return levels
}

// sweep drops the states of subjects without requests, at most once a minute. The caller holds the lock.
func (a *limitedAccount) sweep(now time.Time) {
	const pause = time.Minute
	if now.Sub(a.swept) <= pause {
		return
	}
	maps.DeleteFunc(a.active, func(of Subject, l *limitedLevel) bool { return of.Of != OfAccount && l.Idle(now) })
	a.swept = now
}

// set sets the limits.
func (l *limitedLevel) set(next UsageLimits, edges int) {
	if l.Limits() != next { // requests without limits were not counted
		l.Forget()
	}
	l.Set(next, edges)
}

// Changed applies changed limits of a subject.
func (l *Limiter) Changed(account string, of Subject) {
	l.mu.Lock()
	a := l.accounts[account]
	l.mu.Unlock()
	if a == nil {
		return
	}
	a.mu.Lock()
	level := a.active[of]
	a.mu.Unlock()
	if level != nil {
		level.line.Advance()
	}
}

// RemoveAccount removes the state of an account that was removed. Its limits must be 0 already.
func (l *Limiter) RemoveAccount(account string) {
	l.Changed(account, Subject{OfAccount, account})
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
	quotas := make(map[string][]State, len(a.active))
	for of, l := range a.active {
		if of.Of != OfKey {
			continue
		}
		limits := a.source.LimitsOf(a.id, of)
		if l.set(limits, a.edges.Count()); limits.HasQuota() { // they may have changed since its last request
			quotas[of.ID] = slices.DeleteFunc(l.AppendStates(nil, now), State.PerMinute)
		}
	}
	return quotas
}

// Enter waits until the limits of concurrency of all levels allow a request. Other limits refuse at once.
// The caller must call [Permit.Settle] when the request has ended. Errors are a [Refusal], or the cause of ctx's end.
func (l *Limiter) Enter(ctx context.Context, r Request) (*Permit, error) {
	a := l.account(r.Account)
	a.load(ctx, r.Levels, false)
	if l.edges != nil {
		a.renew(r.Levels)
	}
	if ctx.Err() != nil { // the sums may be missing
		return nil, context.Cause(ctx)
	}
	p, err := a.reserve(&r)
	if err != nil {
		return nil, err
	}
	for i, level := range slices.Backward(p.levels) { // the key's line first
		waited, err := level.line.Enter(ctx, r.Client, r.Length, r.Queue)
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
	p := &Permit{account: a}
	p.levels = a.levels(p.usual[:0], r.Levels, now)
	var usual [UsualLevels]*Level
	levels := usual[:0]
	for _, l := range p.levels {
		levels = append(levels, l.Level)
	}
	var refused *Refusal
	p.reservation, refused = Reserve(now, r.Cost, levels...)
	if p.states = states(p.levels, now); refused != nil {
		refused.States = p.states
		return nil, refused
	}
	return p, nil
}

// Usage returns the states of the limits of all levels of a key, and the usage of the key.
func (l *Limiter) Usage(ctx context.Context, account string, of []Subject) (u Usage, err error) {
	a := l.account(account)
	a.load(ctx, of, true)
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	levels := a.levels(nil, of, now)
	for _, l := range levels {
		if l.of.Of == OfKey {
			u.Day, u.Month = l.Ended(now)
		}
	}
	u.States = states(levels, now)
	return u, context.Cause(ctx)
}

// states returns the states of all limits that are set.
func states(levels []*limitedLevel, now time.Time) []State {
	states := make([]State, 0, 12)
	for _, l := range levels {
		states = l.AppendStates(states, now)
	}
	return states
}

// refusal returns the refusal for an error of a line.
func (p *Permit) refusal(i int, err error) error {
	if !errors.Is(err, fair.ErrFull) && !errors.Is(err, fair.ErrTimeout) {
		return err
	}
	const retry = 5 * time.Second
	l := p.levels[i]
	state := l.share(State{
		Limit: Concurrency, Subject: l.of, Max: int64(p.account.concurrency(l.of)), Used: l.line.Running(),
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
	var crossed []Crossing
	for _, l := range p.levels {
		crossed = append(crossed, l.Crossed(now)...)
	}
	p.account.mu.Unlock()
	for _, c := range crossed {
		p.account.source.Crossed(p.account.id, c)
	}
}
