package oidc

import (
	"errors"
	"fmt"

	"github.com/postern-dev/postern/connector/text"
)

// The kinds of errors. Their texts are titles of pages.
var (
	ErrAttempt = errors.New("start again")               // the client's answer is wrong, late, or was used
	ErrRefused = errors.New("the issuer refused")        // to sign the person in
	ErrNoRole  = errors.New("you have no role here")     // the claims are complete and fit no role
	ErrClaims  = errors.New("the claims are incomplete") // a claim is missing or unusable
	ErrDown    = errors.New("the issuer is unavailable")
	ErrInvalid = errors.New("the issuer's answer is not valid")
	ErrClock   = errors.New("the clocks differ")
)

var errMismatch = errors.New("the discovery document is wrong")

// Failure is an error with a text for people, and what only the log may contain.
type Failure struct {
	kind        error
	text, Cause string // Cause is short and printable
	// Counts: the cause is the client, which must not try without limit.
	Counts bool
}

func (f *Failure) Error() string { return f.text }
func (f *Failure) Unwrap() error { return f.kind }

// failure returns an error whose text begins with the issuer.
func (i *Issuer) failure(kind error, cause any, format string, args ...any) *Failure {
	said := "the issuer " + i.Name + " " + fmt.Sprintf(format, args...)
	return &Failure{kind, said, text.Short(fmt.Sprint(cause)), kind == ErrAttempt || kind == ErrRefused}
}

// Retry returns the error of an answer that is not accepted.
func (i *Issuer) Retry(cause any) *Failure {
	return i.failure(ErrAttempt, cause, "sent an answer that is late, used before, or of another sign-in. Try again")
}

// Other returns the error of an answer about another person than the user of the session.
func (i *Issuer) Other() *Failure {
	return i.failure(ErrRefused, "another sub", "signed in another person. Sign in there as yourself, and try again")
}

func (i *Issuer) down(cause error) *Failure {
	if errors.Is(cause, errMismatch) {
		return i.failure(ErrInvalid, cause, "is not the one of the configuration: %v. Ask an admin", cause)
	}
	return i.failure(ErrDown, cause, "is down, or cannot be reached. Try again later, or sign in another way; the log "+
		"says why")
}

func (i *Issuer) invalid(cause any) *Failure {
	return i.failure(ErrInvalid, cause, "sent a wrong answer. Ask an admin of the gateway: its log says why")
}
