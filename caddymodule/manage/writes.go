package manage

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// writesAtOnce is how many writes a user may make at once, and writePause the time in which it may
	// make one more. Each is an event, and a line of the log and of the audit list.
	writesAtOnce = 200
	writePause   = 100 * time.Millisecond
	// limitersKept is the number of users from which on those are dropped who may make all writes again.
	limitersKept = 1000
)

// ErrTooManyWrites is wrapped by writes of a user who makes too many.
var ErrTooManyWrites = errors.New("too many changes")

var errTooManyWrites = faultf(ErrTooManyWrites,
	"too many changes: a user can make %d at once, and then %d a second; try again in a second",
	writesAtOnce, time.Second/writePause)

// Pace fails with [ErrTooManyWrites] if the caller makes too many writes. method is that of the request. Operators
// may make any number. The tokens of a user share a pace of their own, so that a stolen one cannot keep the
// user from revoking it.
func (s *Service) Pace(ctx context.Context, method string) error {
	c := CallerFrom(ctx)
	if c.Operator || method == http.MethodGet || method == http.MethodHead ||
		s.writeLimiters.take(writer{c.User, c.Token != ""}, s.now()) {
		return nil
	}
	return errTooManyWrites
}

// writer is a user with the sessions, or with all management tokens.
type writer struct {
	user   string
	tokens bool
}

// writeLimiters are the limiters of the users.
type writeLimiters struct {
	mu       sync.Mutex
	limiters map[writer]*rate.Limiter
	limit    int // of the limiters; then the full ones are dropped
}

// take reports whether a write may be made now.
func (ls *writeLimiters) take(w writer, now time.Time) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.limiters[w]
	if l == nil {
		if len(ls.limiters) >= ls.limit {
			maps.DeleteFunc(ls.limiters, func(_ writer, l *rate.Limiter) bool { return l.TokensAt(now) >= writesAtOnce })
			ls.limit = max(2*len(ls.limiters), limitersKept)
		}
		if ls.limiters == nil {
			ls.limiters = make(map[writer]*rate.Limiter)
		}
		l = rate.NewLimiter(rate.Every(writePause), writesAtOnce)
		ls.limiters[w] = l
	}
	return l.AllowN(now, 1)
}
