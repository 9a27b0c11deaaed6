package manage

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

// ErrNotReady is wrapped by operations that the gateway's configuration does
// not allow yet, such as creating a tunnel token without a public address.
var ErrNotReady = errors.New("not possible with this configuration")

// ErrForbidden is wrapped by operations that the caller may not ask for.
var ErrForbidden = errors.New("not allowed")

// ErrUnconfirmed is wrapped by operations that need the password or a passkey of
// the session's user to have been given within [signin.ConfirmedFor].
var ErrUnconfirmed = errors.New("not confirmed")

// fault is an error whose text is for the user, as those of package store are:
// without the name of the sentinel that errors.Is finds.
type fault struct {
	kind error
	text string
}

func (f *fault) Error() string { return f.text }
func (f *fault) Unwrap() error { return f.kind }

func faultf(kind error, format string, args ...any) error {
	return &fault{kind: kind, text: fmt.Sprintf(format, args...)}
}

// Fault returns an error of a kind that [StatusOf] knows, with a text for users.
func Fault(kind error, text string) error { return &fault{kind, text} }

// requestError is a fault of the HTTP request itself, found before any
// operation ran. Its text names the field and the fix.
type requestError struct {
	status int
	text   string
}

func (e *requestError) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return &requestError{status: http.StatusBadRequest, text: fmt.Sprintf(format, args...)}
}

// StatusOf maps an operation's error to its HTTP status. What is not named
// here is a fault of the gateway's.
func StatusOf(err error) int {
	var request *requestError
	var throttled *signin.ThrottledError
	switch {
	case errors.As(err, &throttled):
		return http.StatusTooManyRequests
	case errors.As(err, &request):
		return request.status
	case errors.Is(err, store.ErrInvalid), errors.Is(err, signin.ErrPassword), errors.Is(err, signin.ErrPasskey), errors.Is(err, signin.ErrLink):
		return http.StatusBadRequest
	case errors.Is(err, ErrForbidden), errors.Is(err, ErrUnconfirmed), errors.Is(err, signin.ErrCredentials):
		return http.StatusForbidden
	case errors.Is(err, store.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrConflict),
		errors.Is(err, store.ErrInUse), errors.Is(err, store.ErrLimit), errors.Is(err, store.ErrExpired), errors.Is(err, store.ErrUsed),
		errors.Is(err, store.ErrDenied), errors.Is(err, ErrNotReady):
		return http.StatusConflict
	case errors.Is(err, store.ErrLocked), errors.Is(err, signin.ErrBusy):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
