package signin

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
)

// The length of passwords in characters: NIST SP 800-63B requires length and advises
// against composition rules.
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
		return store.Errorf(ErrPassword, "the password is not valid text: choose another one")
	case strings.EqualFold(strings.TrimSpace(password), strings.TrimSpace(name)):
		return store.Errorf(ErrPassword, "the password must differ from the name: choose one that is hard to guess")
	case strings.TrimSpace(password) == "":
		return store.Errorf(ErrPassword, "the password consists only of spaces: choose one that is hard to guess")
	}
	return nil
}

// hash waits for a slot and hashes a new password.
func (s *Service) hash(ctx context.Context, password string) (string, error) {
	slot, err := s.slot(ctx, anywhere, true)
	if err != nil {
		return "", err
	}
	defer slot.Release()
	return newPasswordHash(s.derive, password).String(), nil
}

// AddUser creates a user with a password.
func (s *Service) AddUser(ctx context.Context, account, name, password string, role store.Role) (store.User, error) {
	if err := cmp.Or(s.Local(), checkPassword(name, password)); err != nil {
		return store.User{}, err
	}
	hash, err := s.hash(ctx, password)
	if err != nil {
		return store.User{}, err
	}
	return s.store.CreateUser(ctx, account, name, hash, role)
}

// ChangePassword replaces the password of a user who knows the old one, and ends
// all of the user's sessions except sessionID. It returns the errors of Password,
// and ErrPassword.
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
	err = s.store.SetPassword(ctx, userID, stored, hash, sessionID)
	switch {
	case errors.Is(err, store.ErrConflict):
		return store.Errorf(ErrCredentials,
			"the password was just changed: try again with the new password as the current one")
	case store.Committed(err):
		s.log.Info("password changed", "user_id", userID)
	}
	return err
}

// checkCurrent checks the password of a signed-in user and returns the stored hash
// that it matches. It returns ErrCredentials, ErrBusy or a *ThrottledError.
func (s *Service) checkCurrent(ctx context.Context, user store.User, password string) (stored string, err error) {
	slot, err := s.slotToGuess(ctx, anywhere, func() bool { return true }, func() error {
		return throttled(s.guard.users.Wait(userKey(user.ID), s.now()))
	})
	if err != nil {
		return "", err
	}
	defer slot.Release()
	stored, right := s.check(user, true, password)
	if !right {
		s.guard.users.Fail(userKey(user.ID), s.now())
		s.log.Warn("failed to confirm the current password", "user_id", user.ID, "reason", "wrong password")
		return "", store.Errorf(ErrCredentials, "the current password is wrong")
	}
	s.guard.users.Forgive(userKey(user.ID), -1)
	return stored, nil
}

// checkLimits bounds the passwords that are checked or hashed at a time, with
// 19 MiB and tens of milliseconds of a core each. One of the three slots is
// only for known clients, see the package comment.
var checkLimits = fair.Limits{
	Slots: 3, Spare: 1,
	Waiting: 256, // with a form of up to 64 KiB each
	Wait:    10 * time.Second,
}

// anywhere stands for the networks of clients that are known without them.
var anywhere = fair.Parse("")

// slot waits until a password of a client with these networks may be checked or hashed. The caller must release it.
func (s *Service) slot(ctx context.Context, from fair.Networks, isKnown bool) (*fair.Slot, error) {
	slot, err := s.checks.Acquire(ctx, from, isKnown)
	if errors.Is(err, fair.ErrBusy) {
		err = store.Errorf(ErrBusy, "too many people are signing in right now: try again in a few seconds")
	}
	return slot, err
}

// slotToGuess is slot for a password that may be a guess. throttle is called before the wait, to reject floods
// cheaply, and after it, since earlier attempts in the queue may have failed.
func (s *Service) slotToGuess(ctx context.Context, from fair.Networks, isKnown func() bool, throttle func() error) (
	slot *fair.Slot, err error,
) {
	if err = throttle(); err != nil {
		return nil, err
	}
	if slot, err = s.slot(ctx, from, isKnown()); err != nil {
		return nil, err
	}
	if err = throttle(); err != nil {
		slot.Release()
	}
	return slot, err
}
