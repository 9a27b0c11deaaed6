package signin

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/logs"
)

// How a session began.
const (
	MethodPassword = "password"
	MethodPasskey  = "passkey"
	MethodLink     = "link"
)

// Options are what New needs.
type Options struct {
	Store  *store.Store
	Logger *slog.Logger     // nil: nothing is logged
	Now    func() time.Time // nil: time.Now
	// Failed, if it is not nil, is called for each sign-in that failed: Method…
	Failed func(method string)
}

// Service signs users in and out. Its methods are safe for concurrent use, and
// nothing runs between them: it need not be closed.
type Service struct {
	store  *store.Store
	log    *slog.Logger
	now    func() time.Time
	failed func(method string)
	derive derive
	checks *fair.Semaphore // of passwords
	guard  *guard
	decoy  passwordHash

	// counters is held from reading a passkey's counter to writing it, so that
	// a copy cannot use the same one at the same time.
	counters sync.Mutex

	ceremonies *ceremonies
	failures   logs.Sampler[netip.Prefix] // of sign-ins that fail
}

// New returns a service for the users in o.Store.
func New(o Options) *Service {
	s := &Service{
		store: o.Store, log: o.Logger, now: o.Now,
		derive: deriveArgon2id, checks: fair.NewSemaphore(checkLimits), guard: newGuard(), decoy: newDecoy(),
		ceremonies: newCeremonies(),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.failed = o.Failed; s.failed == nil {
		s.failed = func(string) {}
	}
	if s.now == nil {
		s.now = time.Now
	}
	return s
}

// Attempt is what a client sends to get in.
type Attempt struct {
	Address   string // of the client, without port
	UserAgent string
	Name      string
	Password  string
	// End is what a recovery link ends besides the sessions.
	End store.Ending
}

// String hides what is typed, if an attempt is logged by mistake.
func (a Attempt) String() string { return "attempt from " + remote(a.Address) }

// LogValue is String for slog.
func (a Attempt) LogValue() slog.Value { return slog.StringValue(a.String()) }

// Signed is a user who is in.
type Signed struct {
	User    store.User
	Session store.Session
	Secret  string // of the session, for the cookie; it is not stored
}

// String hides the secret.
func (s Signed) String() string { return s.User.ID + " in " + s.Session.ID }

// LogValue is String for slog.
func (s Signed) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Password signs a user in by name and password. Its errors are ErrCredentials,
// ErrBusy, a *ThrottledError, or the store's.
func (s *Service) Password(ctx context.Context, a Attempt) (Signed, error) {
	// Once before waiting, to turn floods away cheaply, and once after it, since
	// those before in the queue may have failed meanwhile.
	if err := s.mayTry(a); err != nil {
		return Signed{}, err
	}
	client := fair.Parse(a.Address)
	release, err := s.checkTurn(ctx, client, s.knows(client, a.Name))
	if err != nil {
		return Signed{}, err
	}
	defer release()
	if err := s.mayTry(a); err != nil {
		return Signed{}, err
	}
	user, known := s.store.FindUser(a.Name)
	hash, right := s.check(user, known, a.Password)
	if !right {
		s.guard.failed(client, named(a.Name), s.now())
		s.logFailure(a.Address, MethodPassword, "wrong name or password")
		return Signed{}, store.Errorf(ErrCredentials, "wrong name or password")
	}
	hash = s.renew(ctx, user, hash, a.Password)
	signed, err := s.begin(ctx, user, MethodPassword, a)
	if err != nil {
		return Signed{}, err
	}
	// A change of the password since the check has ended the sessions that there
	// were then; this one must not outlive that.
	if s.store.PasswordHash(user.ID) != hash {
		_ = s.SignOut(ctx, signed.Session)
		s.logFailure(a.Address, MethodPassword, "the password was changed meanwhile")
		return Signed{}, store.Errorf(ErrCredentials, "the password has just been changed: sign in with the new one")
	}
	s.guard.succeeded(client, named(a.Name))
	return signed, nil
}

// mayTry returns an error if an attempt must wait.
func (s *Service) mayTry(a Attempt) error {
	client := fair.Parse(a.Address)
	err := s.guard.user(client, named(a.Name), func() bool { return s.knows(client, a.Name) }, s.now())
	if err != nil {
		s.log.Debug("sign-in refused", "remote", remote(a.Address), "error", err)
	}
	return err
}

// knows reports whether the user of this name has a session from this client.
func (s *Service) knows(client fair.Networks, name string) bool {
	user, ok := s.store.FindUser(name)
	return ok && client.Narrowest().IsValid() && slices.ContainsFunc(s.store.Sessions(user.ID), func(o store.Session) bool {
		return fair.Parse(o.Address).Narrowest() == client.Narrowest()
	})
}

// check derives a password exactly once, also where there is nothing to
// compare with, and returns the stored hash that it is right for.
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

// renew replaces a hash of another cost than the current one, and returns the
// one that is stored now. A failure of that is not a reason to refuse the user.
func (s *Service) renew(ctx context.Context, user store.User, stored, password string) string {
	parsed, err := parseHash(stored)
	if err != nil || parsed.cost == currentCost {
		return stored
	}
	renewed := newPasswordHash(s.derive, password).String()
	if err := s.store.SetPassword(ctx, user.ID, stored, renewed, ""); err != nil {
		s.log.Warn("failed to store a password at the current cost", "user_id", user.ID, "error", err)
		return stored
	}
	return renewed
}

// begin creates the session of a user who has authenticated: always a new one, also
// where the browser has one.
func (s *Service) begin(ctx context.Context, user store.User, method string, a Attempt) (Signed, error) {
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

// remote is an address as logs and lists of sessions show it.
func remote(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return "unknown"
	}
	return ip.Unmap().String()
}

// Session returns the valid session with this secret and its user, and notes
// that it was used. It does no I/O.
func (s *Service) Session(secret string) (store.Session, store.User, bool) {
	session, user, ok := s.Peek(secret)
	if ok {
		s.store.TouchSession(session)
	}
	return session, user, ok
}

// Peek is Session for what a page does by itself, without its user: that does not
// use the session.
func (s *Service) Peek(secret string) (store.Session, store.User, bool) {
	session, ok := s.store.FindSession(secret)
	if !ok {
		return store.Session{}, store.User{}, false
	}
	user, ok := s.store.User(session.User)
	if !ok {
		return store.Session{}, store.User{}, false
	}
	return session, user, true
}

// Token returns the management token with this secret and the user it acts
// for, and notes that it was used. It does no I/O. Its error is ErrToken.
func (s *Service) Token(secret string) (store.Token, store.User, error) {
	token, ok := s.store.FindToken(secret)
	user, known := s.store.User(token.User)
	switch {
	case !ok || !known:
		return store.Token{}, store.User{}, store.Errorf(ErrToken, "the management token is unknown or was revoked: make one in the console, under Settings")
	case token.Expired(s.now()):
		return store.Token{}, store.User{}, store.Errorf(ErrToken, "the management token %q ended on %s: make a new one in the console, under Settings",
			token.Name, token.ExpiresAt.UTC().Format("2006-01-02 at 15:04 UTC"))
	}
	s.store.TouchToken(token)
	return token, user, nil
}

// SignOut ends a session. That it has ended already is not an error.
func (s *Service) SignOut(ctx context.Context, session store.Session) error {
	err := s.store.RemoveSession(ctx, session.User, session.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// stamp is now as records have it.
func (s *Service) stamp() time.Time { return s.now().UTC().Truncate(time.Millisecond) }
