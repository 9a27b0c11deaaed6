package signin

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// The kinds of errors. Errors of these kinds have messages for the user, to be
// shown unchanged. Errors of the store are returned as they are.
var (
	ErrCredentials = errors.New("wrong name or password")
	ErrPassword    = errors.New("password not allowed") // a new password breaks a rule
	ErrPasskey     = errors.New("passkey rejected")     // wrong, unknown, copied, late, or unsupported at this address
	ErrLink        = errors.New("invalid link")         // unknown, used or expired
	ErrSession     = errors.New("no session")           // unknown or ended
	ErrToken       = errors.New("invalid management token")
	ErrBusy        = errors.New("busy") // too many passwords wait to be checked
)

var errLocalOff = store.Errorf(store.ErrConflict, "this gateway has switched off passwords, passkeys and invitations "+
	"(`local off`): sign in with the company's account")

// ThrottledError is returned after too many failed attempts. Nothing was checked.
type ThrottledError struct {
	RetryAfter time.Duration
}

// Seconds returns the value of the HTTP header Retry-After.
func (e *ThrottledError) Seconds() string { return strconv.Itoa(e.seconds()) }

func (e *ThrottledError) seconds() int { return max(1, int(math.Ceil(e.RetryAfter.Seconds()))) }

func (e *ThrottledError) Error() string {
	seconds := e.seconds()
	switch {
	case seconds == 1:
		return "too many failed attempts: try again in a second"
	case seconds < 120:
		return fmt.Sprintf("too many failed attempts: try again in %d seconds", seconds)
	}
	return fmt.Sprintf("too many failed attempts: try again in %d minutes", (seconds+59)/60)
}
