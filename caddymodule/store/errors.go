package store

import (
	"errors"
	"fmt"

	"github.com/postern-dev/postern/caddymodule/program"
)

// Kinds of errors that a caller can cause. Their messages describe the problem and, if
// useful, the remedy. They are meant for users, to be shown unchanged.
var (
	ErrInvalid         = errors.New("invalid")          // the arguments break a rule
	ErrNotFound        = errors.New("not found")        // the record or lease does not exist
	ErrExists          = errors.New("already exists")   // the name is taken
	ErrInUse           = errors.New("in use")           // deployments still need the connector; the account is not empty
	ErrConflict        = errors.New("not possible now") // the records are not in the required state, or keep changing
	ErrUnauthenticated = errors.New("unauthenticated")  // unknown connector, wrong secret, unknown pairing code
	ErrRotated         = errors.New("rotated")          // the secret of the connector has ended after a rotation
	ErrExpired         = errors.New("expired")          // the link or the pairing code has ended
	ErrUsed            = errors.New("already used")     // by another device, or before
	ErrLimit           = errors.New("limit reached")    // a limit of the account is reached
	ErrDenied          = errors.New("denied")           // the pairing was denied
)

// The store itself cannot be used.
var (
	ErrLocked = errors.New("the store is locked")      // another process has the file open
	ErrSchema = errors.New("the store cannot be read") // the file or a record is of another program or of a newer Postern
	ErrClosed = errors.New("the store is closed")      // Close was called
	// ErrUnavailable: the servers of a networked store did not answer, or refused. A write
	// that failed with it may have been made.
	ErrUnavailable = errors.New("the store cannot be reached")
	// ErrNoSpace, which is an ErrUnavailable: the servers have no space for changes. Nothing was changed.
	ErrNoSpace = fmt.Errorf("%w: it has no space", ErrUnavailable)
)

// ErrCompacted is returned by a watch for events that the KV no longer keeps. The watcher
// must read the current state with Each and watch from there.
var ErrCompacted = errors.New("the requested changes are no longer available")

// failure is an error with a message of its own and a kind for errors.Is. The message
// does not include that of the kind.
type failure struct {
	kind  error
	field string // that is wrong, "" if it is not known
	text  string
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.kind }

// Errorf returns an error with a message for the user and a kind for errors.Is: one of
// the above, or one of a package that uses the store.
func Errorf(kind error, format string, args ...any) error {
	return &failure{kind: kind, text: fmt.Sprintf(program.Named(format), args...)}
}

// InField returns an error of [Errorf] that names the wrong field of the request.
func InField(field string, err error) error {
	if f, ok := err.(*failure); ok {
		return &failure{f.kind, field, f.text}
	}
	return err
}

// FieldOf returns the field that an error names, if any, and its text without what failed because of it.
func FieldOf(err error) (field, text string) {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.field, f.text
	}
	return "", err.Error()
}
