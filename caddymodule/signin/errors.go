package signin

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Why a user does not get in, or cannot have what was asked for. The errors of
// these kinds are sentences for the person who asked; show them as they are.
// Errors of the store come through as they are.
var (
	ErrCredentials = errors.New("wrong name or password")
	ErrPassword    = errors.New("password not allowed") // a new password breaks a rule
	ErrPasskey     = errors.New("passkey refused")      // wrong, unknown, copied, late, or not possible at this address
	ErrLink        = errors.New("link not valid")       // unknown, used or expired
	ErrToken       = errors.New("management token not valid")
	ErrBusy        = errors.New("busy") // too many passwords wait to be checked
)

// ThrottledError says that too many attempts have failed. Nothing was checked.
type ThrottledError struct {
	RetryAfter time.Duration
}

// Seconds is RetryAfter as the HTTP field of that name has it.
func (e *ThrottledError) Seconds() string { return strconv.Itoa(e.seconds()) }

func (e *ThrottledError) seconds() int { return max(1, int(math.Ceil(e.RetryAfter.Seconds()))) }

func (e *ThrottledError) Error() string {
	seconds := e.seconds()
	switch {
	case seconds == 1:
		return "too many attempts have failed: try again in a second"
	case seconds < 120:
		return fmt.Sprintf("too many attempts have failed: try again in %d seconds", seconds)
	}
	return fmt.Sprintf("too many attempts have failed: try again in %d minutes", (seconds+59)/60)
}
