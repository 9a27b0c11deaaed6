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
	// pacesKept is the number of users from which on those are dropped who may make all writes again.
	pacesKept = 1000
)

// ErrPaced is wrapped by writes of a user who makes too many.
var ErrPaced = errors.New("too many changes")

var errPaced = faultf(ErrPaced,
	"too many changes: a user can make %d at once, and then %d a second; try again in a second",
	writesAtOnce, time.Second/writePause)

// Pace fails with [ErrPaced] if the caller makes too many writes. method is that of the request. Operators
// may make any number. The tokens of a user share a pace of their own, so that a stolen one cannot keep the
// user from revoking it.
func (s *Service) Pace(ctx context.Context, method string) error {
	c := CallerFrom(ctx)
	if c.Operator || method == http.MethodGet || method == http.MethodHead ||
		s.paces.take(writer{c.User, c.Token != ""}, s.now()) {
		return nil
	}
	return errPaced
}

// writer is a user with the sessions, or with all management tokens.
type writer struct {
	user   string
	tokens bool
}

// paces are the writes of users.
type paces struct {
	mu       sync.Mutex
	limiters map[writer]*rate.Limiter
	limit    int // of the limiters; then the full ones are dropped
}

// take reports whether a write may be made now.
func (p *paces) take(by writer, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.limiters[by]
	if l == nil {
		if len(p.limiters) >= p.limit {
			maps.DeleteFunc(p.limiters, func(_ writer, l *rate.Limiter) bool { return l.TokensAt(now) >= writesAtOnce })
			p.limit = max(2*len(p.limiters), pacesKept)
		}
		if p.limiters == nil {
			p.limiters = make(map[writer]*rate.Limiter)
		}
		l = rate.NewLimiter(rate.Every(writePause), writesAtOnce)
		p.limiters[by] = l
	}
	return l.AllowN(now, 1)
}
