package manage

import (
	"errors"
	"net/http"
	"slices"

	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/signin/oidc"
	"github.com/postern-dev/postern/caddymodule/store"
)

// ErrNotReady is wrapped by operations that the gateway's configuration does
// not allow yet, such as creating a tunnel token without a public address.
var ErrNotReady = errors.New("not possible with this configuration")

// ErrForbidden is wrapped by operations that the caller may not perform.
var ErrForbidden = errors.New("not allowed")

// ErrUnconfirmed is wrapped by operations that need a session whose user entered a
// password, used a passkey or signed in again within [signin.ConfirmedFor].
var ErrUnconfirmed = errors.New("not confirmed")

// The kinds of errors of the HTTP request itself.
var (
	errMethod    = errors.New("method not allowed")
	errMediaType = errors.New("unsupported media type")
	errTooLarge  = errors.New("request entity too large")
)

// faultf returns an error of a kind that [StatusOf] maps, with a text for users that
// names the problem and the fix.
func faultf(kind error, format string, args ...any) error { return store.Errorf(kind, format, args...) }

// badRequest returns the error of an invalid request.
func badRequest(format string, args ...any) error { return faultf(store.ErrInvalid, format, args...) }

// statuses are the HTTP statuses of errors, by kind.
var statuses = []struct {
	status int
	kinds  []error
}{
	{http.StatusMethodNotAllowed, []error{errMethod}},
	{http.StatusUnsupportedMediaType, []error{errMediaType}},
	{http.StatusRequestEntityTooLarge, []error{errTooLarge}},
	{http.StatusBadRequest, []error{
		store.ErrInvalid, signin.ErrPassword, signin.ErrPasskey, signin.ErrLink, oidc.ErrAttempt,
	}},
	{http.StatusForbidden, []error{
		ErrForbidden, ErrUnconfirmed, signin.ErrCredentials, oidc.ErrRefused, oidc.ErrNoRole, oidc.ErrClaims,
	}},
	{http.StatusNotFound, []error{store.ErrNotFound}},
	{http.StatusConflict, []error{
		store.ErrExists, store.ErrConflict, store.ErrInUse, store.ErrLimit, store.ErrExpired, store.ErrUsed, store.ErrDenied,
		ErrNotReady,
	}},
	{http.StatusTooManyRequests, []error{ErrTooManyWrites}},
	{http.StatusServiceUnavailable, []error{
		store.ErrLocked, store.ErrUnavailable, signin.ErrBusy, oidc.ErrDown, oidc.ErrInvalid, oidc.ErrClock,
	}},
}

// StatusOf maps an operation's error to its HTTP status. Other errors are internal.
func StatusOf(err error) int {
	if throttled := (*signin.ThrottledError)(nil); errors.As(err, &throttled) {
		return http.StatusTooManyRequests
	}
	for _, s := range statuses {
		if slices.ContainsFunc(s.kinds, func(kind error) bool { return errors.Is(err, kind) }) {
			return s.status
		}
	}
	return http.StatusInternalServerError
}

// Hidden reports whether the text of an error is for the log and for operators only.
func Hidden(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || StatusOf(err) == http.StatusInternalServerError
}

// Explain returns the HTTP status of an error, and its text for users.
func Explain(err error) (status int, text string) {
	switch status = StatusOf(err); {
	case !Hidden(err):
		return status, err.Error()
	case status == http.StatusServiceUnavailable:
		return status, "this gateway cannot reach its store, so the change may or may not have been made: check, and try " +
			"again; the gateway's log has the reason"
	}
	return status, "the gateway failed to do this; its log has the reason"
}

const (
	// storeWait is the Retry-After of a gateway that has lost its store, in seconds.
	storeWait = "5"
	// writeWait is that of a user who makes too many changes.
	writeWait = "1"
)

// RetryAfter returns the value of the HTTP header Retry-After for an error, "" for none.
func RetryAfter(err error) string {
	if throttled := (*signin.ThrottledError)(nil); errors.As(err, &throttled) {
		return throttled.Seconds()
	}
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return storeWait
	case errors.Is(err, ErrTooManyWrites):
		return writeWait
	}
	return ""
}
