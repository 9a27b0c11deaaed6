package signin

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
)

// The length of passwords in characters: NIST SP 800-63B asks for length, and
// against rules on what they are made of.
const (
	minPassword      = 10
	maxPassword      = 128
	maxPasswordBytes = maxPassword * utf8.UTFMax
)

func checkPassword(name, password string) error {
	switch n := utf8.RuneCountInString(password); {
	case n < minPassword:
		return store.Errorf(ErrPassword, "the password is too short: it needs at least %d characters", minPassword)
	case n > maxPassword:
		return store.Errorf(ErrPassword, "the password is too long: it can have at most %d characters", maxPassword)
	case !utf8.ValidString(password):
		return store.Errorf(ErrPassword, "the password has bytes that are not text: choose another one")
	case strings.EqualFold(strings.TrimSpace(password), strings.TrimSpace(name)):
		return store.Errorf(ErrPassword, "the password is the name: choose one that cannot be guessed")
	case strings.TrimSpace(password) == "":
		return store.Errorf(ErrPassword, "the password is nothing but blanks: choose one that cannot be guessed")
	}
	return nil
}

// hash derives a new password when it is its turn.
func (s *Service) hash(ctx context.Context, password string) (string, error) {
	release, err := s.knownTurn(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	return newPasswordHash(s.derive, password).String(), nil
}

// AddUser creates a user with a password.
func (s *Service) AddUser(ctx context.Context, account, name, password string) (store.User, error) {
	if err := checkPassword(name, password); err != nil {
		return store.User{}, err
	}
	hash, err := s.hash(ctx, password)
	if err != nil {
		return store.User{}, err
	}
	return s.store.CreateUser(ctx, account, name, hash)
}

// ChangePassword gives a user who knows the old password a new one, and ends
// the user's sessions but the one with the id sessionID. Its errors are those
// of Password, and ErrPassword.
func (s *Service) ChangePassword(ctx context.Context, userID, sessionID, old, password string) error {
	user, ok := s.store.User(userID)
	if !ok {
		return store.Errorf(store.ErrNotFound, "the user was removed")
	}
	if err := checkPassword(user.Name, password); err != nil {
		return err
	}
	stored, err := s.checkCurrent(ctx, user, old)
	if err != nil {
		return err
	}
	hash, err := s.hash(ctx, password)
	if err != nil {
		return err
	}
	switch err := s.store.SetPassword(ctx, userID, stored, hash, sessionID); {
	case errors.Is(err, store.ErrConflict):
		return store.Errorf(ErrCredentials, "the password has just been changed: try again with the new one as the current one")
	case err != nil:
		return err
	}
	s.log.Info("password changed", "user_id", userID)
	return nil
}

// checkCurrent checks the password of a user who is signed in, and returns the
// stored hash that it is right for. Its errors are ErrCredentials, ErrBusy and
// *ThrottledError.
func (s *Service) checkCurrent(ctx context.Context, user store.User, password string) (stored string, err error) {
	if err := throttled(s.guard.users.wait(changing(user.ID), s.now())); err != nil {
		return "", err
	}
	release, err := s.knownTurn(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	if err := throttled(s.guard.users.wait(changing(user.ID), s.now())); err != nil {
		return "", err
	}
	stored, right := s.check(user, true, password)
	if !right {
		s.guard.users.failed(changing(user.ID), s.now())
		s.log.Warn("failed to confirm the current password", "user_id", user.ID, "reason", "wrong password")
		return "", store.Errorf(ErrCredentials, "the current password is wrong")
	}
	s.guard.users.forgive(changing(user.ID), -1)
	return stored, nil
}

// checkLimits are those of passwords that are checked or hashed at a time, with
// 19 MiB and tens of milliseconds of a core each. One of the three is for known
// clients, see the package. Strangers take turns over their networks.
var checkLimits = fair.Limits{
	Permits: 3, Reserved: 1,
	Waiting: 256, // with a form of up to 64 KiB each
	Wait:    10 * time.Second,
}

// checkTurn waits until a password may be checked, of a client with these networks.
// The caller ends that with release.
func (s *Service) checkTurn(ctx context.Context, from fair.Networks, isKnown bool) (release func(), err error) {
	permit, err := s.checks.Acquire(ctx, from, isKnown)
	switch {
	case errors.Is(err, fair.ErrBusy):
		return nil, store.Errorf(ErrBusy, "too many people are signing in at this moment: try again in a few seconds")
	case err != nil:
		return nil, err
	}
	return permit.Release, nil
}

// knownTurn is checkTurn for known clients, and needs no address for that.
func (s *Service) knownTurn(ctx context.Context) (release func(), err error) {
	return s.checkTurn(ctx, fair.Parse(""), true)
}
