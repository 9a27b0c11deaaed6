package manage

import (
	"context"
	"errors"
	"net/http"
	"time"

	"golang.org/x/time/rate"
)

const (
	// A user may make writesAtOnce writes at once, and then one in each writePause. Each write is an event, a line
	// of the log and an entry of the audit log.
	writesAtOnce = 200
	writePause   = 100 * time.Millisecond
	// writersKept is the number of users whose writes are limited, those who have written last.
	writersKept = 1000
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
		s.mayWrite(writer{c.User, c.Token != ""}) {
		return nil
	}
	return errTooManyWrites
}

// writer is a user with sessions, or with management tokens.
type writer struct {
	user   string
	tokens bool
}

// mayWrite reports whether a write may be made now.
func (s *Service) mayWrite(w writer) bool {
	l, ok := s.writers.Get(w)
	if !ok {
		l = rate.NewLimiter(rate.Every(writePause), writesAtOnce)
		if other, ok, _ := s.writers.PeekOrAdd(w, l); ok {
			l = other
		}
	}
	return l.AllowN(s.now(), 1)
}
