package store

import (
	"errors"
	"fmt"
)

// What a caller asked for cannot be done. Errors of these kinds have a plain text
// of what is wrong, and where it helps, what to do; show them to the user as they
// are.
var (
	ErrInvalid         = errors.New("invalid")         // the arguments break a rule
	ErrNotFound        = errors.New("not found")       // the record or lease does not exist
	ErrExists          = errors.New("exists already")  // the name is taken
	ErrInUse           = errors.New("in use")          // deployments still need the connector; the account is not empty
	ErrConflict        = errors.New("conflict")        // the records are not, or do not stay, in the state that the write needs
	ErrUnauthenticated = errors.New("unauthenticated") // unknown connector, wrong secret, unknown claim code
	ErrExpired         = errors.New("expired")         // the link or the claim code has ended
	ErrUsed            = errors.New("used")            // another device has used the claim code
	ErrLimit           = errors.New("limit reached")   // the account has as many as it may have
	ErrDenied          = errors.New("denied")          // the pairing was denied
)

// The store itself cannot be used.
var (
	ErrLocked = errors.New("the store is locked")      // another process has the file open
	ErrSchema = errors.New("the store cannot be read") // the file or a record is of another program or of a newer Postern
	ErrClosed = errors.New("the store is closed")      // Close was called
)

// ErrCompacted says that a watch asks for events that the KV no longer has.
// The watcher reads the present state with Range and watches from there.
var ErrCompacted = errors.New("the changes asked for are no longer kept")

// failure is an error whose text is all its own, so that users do not read
// the name of the sentinel, and whose kind errors.Is still finds.
type failure struct {
	kind error
	text string
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.kind }

// Errorf returns an error with a text for the user, of which errors.Is finds the
// kind: one of the above, or of a package that works on the store.
func Errorf(kind error, format string, args ...any) error {
	return &failure{kind: kind, text: fmt.Sprintf(format, args...)}
}
