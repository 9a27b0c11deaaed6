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
	// A user may make writesAtOnce writes at once, and then one in each writePause. Each write is an event, a line
	// of the log and an entry of the audit list.
	writesAtOnce = 200
	writePause   = 100 * time.Millisecond
	// limitersKept is the number of limiters above which full ones are dropped.
	limitersKept = 1000
)

// ErrTooManyWrites is wrapped by the errors of writes of a user who makes too many.
var ErrTooManyWrites = errors.New("too many changes")

var errTooManyWrites = faultf(ErrTooManyWrites,
	"too many changes: a user can make %d at once, and then %d a second; try again in a second",
	writesAtOnce, time.Second/writePause)

// Pace fails with [ErrTooManyWrites] if the caller makes too many writes. method is that of the request. Operators
// may make any number. The tokens of a user share a limit apart from the sessions, so that a stolen token cannot
// keep the user from revoking it.
func (s *Service) Pace(ctx context.Context, method string) error {
	c := CallerFrom(ctx)
	if c.Operator || method == http.MethodGet || method == http.MethodHead ||
		s.writeLimiters.take(writer{c.User, c.Token != ""}, s.now()) {
		return nil
	}
	return errTooManyWrites
}

// writer is a user with sessions, or with management tokens.
type writer struct {
	user   string
	tokens bool
}

// writeLimiters limit the writes of users.
type writeLimiters struct {
	mu       sync.Mutex
	limiters map[writer]*rate.Limiter
	limit    int // the number of limiters at which full ones are dropped
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
