package signin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/logs"
	"github.com/postern-dev/postern/connector/text"
)

// The methods of signing in.
const (
	MethodPassword = "password"
	MethodPasskey  = "passkey"
	MethodLink     = "link"
)

// Options configure a Service.
type Options struct {
	Store  *store.Store
	Logger *slog.Logger     // nil: nothing is logged
	Now    func() time.Time // nil: time.Now
	// Failed, if not nil, is called for each failed sign-in with its Method…
	Failed func(method string)
	// Edges divides the rates of failures among the edges of a cluster.
	Edges fair.Edges
}

// Service signs users in and out. Its methods are safe for concurrent use. It need
// not be closed.
type Service struct {
	store   *store.Store
	log     *slog.Logger
	now     func() time.Time
	failed  func(method string)
	derive  derive
	checks  *fair.Semaphore // for passwords
	guard   *guard
	answers *answers
	decoy   passwordHash

	sealer   sealer
	failures logs.Sampler[netip.Prefix] // logs failed sign-ins
}

// New returns a service for the users in o.Store.
func New(o Options) (*Service, error) {
	s := &Service{
		store: o.Store, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), now: o.Now,
		derive: deriveArgon2id, checks: fair.NewSemaphore(checkLimits), guard: newGuard(o.Edges), decoy: newDecoy(),
	}
	if s.failed = o.Failed; s.failed == nil {
		s.failed = func(string) {}
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.answers, _ = lru.New[netip.Prefix, *rate.Limiter](maxEntries) // no error: the size is positive
	var err error
	if s.sealer.Sealer, err = o.Store.Sealer(context.Background()); err != nil {
		return nil, err
	}
	return s, nil
}

// Attempt is the input of a client that signs in.
type Attempt struct {
	text.Secrets
	Address   string // of the client, without port
	UserAgent string
	Name      string
	Password  string
	// End selects what a recovery link revokes in addition to the sessions.
	End store.Ending
}

// Signed is a user who has signed in.
type Signed struct {
	text.Secrets
	User    store.User
	Session store.Session
	Secret  string // of the session, for the cookie; not stored
}

// Password signs a user in by name and password. It returns ErrCredentials, ErrBusy,
// a *ThrottledError, or an error of the store.
func (s *Service) Password(ctx context.Context, a Attempt) (Signed, error) {
	if err := s.Local(); err != nil {
		return Signed{}, err
	}
	client := fair.Parse(a.Address)
	isKnown := func() bool { return s.knows(client, a.Name) }
	slot, err := s.slotToGuess(ctx, client, isKnown, func() error {
		err := s.guard.checkUser(client, nameKey(a.Name), isKnown, s.now())
		if err != nil {
			s.log.Debug("sign-in throttled", "remote", remote(a.Address), "error", err)
		}
		return err
	})
	if err != nil {
		return Signed{}, err
	}
	defer slot.Release()
	user, known := s.store.FindUser(a.Name)
	hash, right := s.check(user, known, a.Password)
	if !right {
		s.guard.failed(client, nameKey(a.Name), s.now())
		s.logFailure(a.Address, MethodPassword, "wrong name or password")
		return Signed{}, store.Errorf(ErrCredentials, "wrong name or password")
	}
	hash = s.renew(ctx, user, hash, a.Password)
	signed, err := s.beginSession(ctx, user, MethodPassword, a)
	if err != nil {
		return Signed{}, err
	}
	// A change of the password after the check has ended all sessions of that time. This one
	// must end, too.
	if s.store.PasswordHash(user.ID) != hash {
		_ = s.SignOut(ctx, signed.Session)
		s.logFailure(a.Address, MethodPassword, "password changed during sign-in")
		return Signed{}, store.Errorf(ErrCredentials, "the password was just changed: sign in with the new one")
	}
	s.guard.succeeded(client, nameKey(a.Name))
	return signed, nil
}

// Local returns an error if signing in by password and passkey is off.
func (s *Service) Local() error {
	if s.store.SignInPolicy().LocalOff {
		return errLocalOff
	}
	return nil
}

// HasPassword reports whether a user can sign in and confirm by a password.
func (s *Service) HasPassword(userID string) bool {
	return s.Local() == nil && s.store.PasswordHash(userID) != ""
}

// knows reports whether the user of this name has a session from this client.
func (s *Service) knows(client fair.Networks, name string) bool {
	user, ok := s.store.FindUser(name)
	return ok && client.Narrowest().IsValid() &&
		slices.ContainsFunc(s.store.Sessions(user.ID), func(o store.Session) bool {
			return fair.Parse(o.Address).Narrowest() == client.Narrowest()
		})
}

// check derives a password exactly once, even if the user does not exist. It
// returns the stored hash and whether the password matches it.
func (s *Service) check(user store.User, known bool, password string) (stored string, right bool) {
	hash := s.decoy
	if known {
		stored = s.store.PasswordHash(user.ID)
		parsed, err := parseHash(stored)
		if err != nil && stored != "" {
			s.log.Error("failed to read a stored password", "user_id", user.ID, "error", err)
		}
		if known = err == nil; known {
			hash = parsed
		}
	}
	if len(password) > maxPasswordBytes {
		password, known = password[:maxPasswordBytes], false
	}
	same := hash.matches(s.derive, password)
	return stored, same && known
}

// renew replaces a hash with another cost than the current one, and returns the stored
// hash. It logs a failure, so that the sign-in succeeds.
func (s *Service) renew(ctx context.Context, user store.User, stored, password string) string {
	parsed, err := parseHash(stored)
	if err != nil || parsed.cost == currentCost {
		return stored
	}
	renewed := newPasswordHash(s.derive, password).String()
	if err := s.store.SetPassword(ctx, user.ID, stored, renewed, ""); !store.Committed(err) {
		s.log.Warn("failed to rehash a password at the current cost", "user_id", user.ID, "error", err)
		return stored
	}
	return renewed
}

// beginSession creates a session for an authenticated user. It is always a new one, even
// if the browser already has a session.
func (s *Service) beginSession(ctx context.Context, user store.User, method string, a Attempt) (Signed, error) {
	session, secret, err := s.store.CreateSession(ctx, user.ID, method, remote(a.Address), a.UserAgent)
	if err != nil {
		return Signed{}, err
	}
	s.log.Info("signed in", "user_id", user.ID, "account_id", user.Account, "method", method, "remote", remote(a.Address))
	return Signed{User: user, Session: session, Secret: secret}, nil
}

func (s *Service) logFailure(address, method, reason string) {
	s.failed(method)
	s.failures.Log(s.log, slog.LevelWarn, fair.Parse(address).Widest(), s.now(), "sign-in failed",
		"remote", remote(address), "method", method, "reason", reason)
}

// remote formats an address for logs and lists of sessions.
func remote(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return "unknown"
	}
	return ip.Unmap().String()
}

// Session returns the valid session with this secret and its user, and records its
// use. It returns ErrSession if there is none, or store.ErrUnavailable.
func (s *Service) Session(ctx context.Context, secret string) (store.Session, store.User, error) {
	session, user, err := s.Peek(ctx, secret)
	if err == nil {
		s.store.TouchSession(session)
	}
	return session, user, err
}

// Peek is Session for automatic requests of a page. It does not record a use.
func (s *Service) Peek(ctx context.Context, secret string) (store.Session, store.User, error) {
	session, ok, err := store.FindFresh(ctx, s.store, secret, s.store.FindSession)
	if err != nil {
		return store.Session{}, store.User{}, err
	}
	user, known := s.store.User(session.User)
	if !ok || !known {
		return store.Session{}, store.User{}, ErrSession
	}
	return session, user, nil
}

// Token returns the management token with this secret and its user, and records its
// use. It returns ErrToken if the token is invalid, or store.ErrUnavailable.
func (s *Service) Token(ctx context.Context, secret string) (store.Token, store.User, error) {
	token, ok, err := store.FindFresh(ctx, s.store, secret, s.store.FindToken)
	user, known := s.store.User(token.User)
	switch {
	case err != nil:
		return store.Token{}, store.User{}, err
	case !ok || !known:
		return store.Token{}, store.User{},
			store.Errorf(ErrToken, "the management token is unknown or was revoked: create one in the console, under Settings")
	case token.Expired(s.now()):
		return store.Token{}, store.User{},
			store.Errorf(ErrToken, "the management token %q expired on %s: create a new one in the console, under Settings",
				token.Name, token.ExpiresAt.UTC().Format("2006-01-02 at 15:04 UTC"))
	case s.store.Suspended(user.ID, s.now()):
		return store.Token{}, store.User{},
			store.Errorf(ErrToken, "the management token %q is suspended, because its user has not signed in for too long: it "+
				"works again when the user signs in to the console with the company's account", token.Name)
	}
	s.store.TouchToken(token)
	return token, user, nil
}

// SignOut ends a session. It is not an error if the session has already ended.
func (s *Service) SignOut(ctx context.Context, session store.Session) error {
	err := s.store.RemoveSession(ctx, session.User, session.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// stamp returns the current time as stored in records.
func (s *Service) stamp() time.Time { return s.now().UTC().Truncate(time.Millisecond) }
