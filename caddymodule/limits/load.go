package limits

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/panics"
)

const (
	// loadPause is the pause after a failure to load sums.
	loadPause = 10 * time.Second
	// maxAge is the maximum age of sums that are shown to a client without limits. Its requests are
	// not counted here.
	maxAge = 10 * time.Second
	// In a cluster, sums are read again in the background from renewAge on, as other edges publish theirs. From
	// staleAge on, the next request waits for them.
	renewAge = 30 * time.Second
	staleAge = 2 * time.Minute
	// loadTimeout is how long reading in the background may take.
	loadTimeout = 10 * time.Second
)

// missing returns the levels whose sums must be loaded. shown means that they are shown to the client.
func (a *limitedAccount) missing(of []Subject, shown bool) []*limitedLevel {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	levels := a.levels(make([]*limitedLevel, 0, UsualLevels), of, now)
	counted := slices.ContainsFunc(levels, func(l *limitedLevel) bool { return l.Limits().Any() })
	return slices.DeleteFunc(levels, func(l *limitedLevel) bool {
		needed := l.Limits().HasQuota() || shown && l.of.Of == OfKey
		age := now.Sub(l.loaded)
		fresh := l.Loaded(now) && (age < maxAge || counted && (a.edges == nil || age < staleAge))
		return !needed || fresh || now.Sub(l.failed) <= loadPause
	})
}

// load loads past usage where it is missing. If that fails, requests are counted from now on, and
// loading is tried again later.
func (a *limitedAccount) load(ctx context.Context, of []Subject, shown bool) {
	for missing := a.missing(of, shown); len(missing) > 0 && ctx.Err() == nil; missing = a.missing(of, shown) {
		a.loadOnce(ctx, missing[0], of, shown)
	}
}

// loadOnce loads the past usage of a level, unless another request has loaded it, or sweep has dropped it.
func (a *limitedAccount) loadOnce(ctx context.Context, l *limitedLevel, of []Subject, shown bool) {
	l.loading.Lock()
	defer l.loading.Unlock()
	if slices.Contains(a.missing(of, shown), l) {
		a.loadLevel(ctx, l)
	}
}

// renew reads old sums of levels again in the background.
func (a *limitedAccount) renew(of []Subject) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, l := range a.levels(nil, of, now) {
		if l.Limits().HasQuota() && now.Sub(l.loaded) > renewAge && now.Sub(l.failed) > loadPause && l.loading.TryLock() {
			go func() {
				defer panics.Recover(a.logger, "reading the usage for limits")
				defer l.loading.Unlock()
				ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
				defer cancel()
				a.loadLevel(ctx, l)
			}()
		}
	}
}

// loadLevel loads the past usage of a level.
func (a *limitedAccount) loadLevel(ctx context.Context, l *limitedLevel) {
	day, month, err := a.source.SumsOf(ctx, a.id, l.of)
	if errors.Is(ctx.Err(), context.Canceled) { // the request has ended
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if err != nil {
		id, _ := l.of.Person() // without the name
		a.logger.Error("failed to read the usage for limits, counting from now on", "account_id", a.id,
			l.of.Of+"_id", id, "error", err)
		l.failed = now
		return
	}
	l.loaded = now
	l.Load(now, day, month)
}
