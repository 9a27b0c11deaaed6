package signin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/text"
)

const (
	maxPasskeys = 20 // per user
	maxName     = 64 // characters of a passkey's name
	maxResponse = 64 << 10
)

// passkeyUser implements webauthn.User.
type passkeyUser struct {
	user        store.User
	passkeys    []store.Passkey
	credentials []webauthn.Credential // of the readable passkeys
}

// WebAuthnID returns the handle by which a passkey identifies its user. It reveals
// nothing about the person.
func (u passkeyUser) WebAuthnID() []byte                         { return []byte(u.user.ID) }
func (u passkeyUser) WebAuthnName() string                       { return u.user.Name }
func (u passkeyUser) WebAuthnDisplayName() string                { return u.user.Name }
func (u passkeyUser) WebAuthnCredentials() []webauthn.Credential { return u.credentials }

// passkeyUser returns a user with all readable passkeys: an unreadable one must not
// disable the others.
func (s *Service) passkeyUser(user store.User) passkeyUser {
	u := passkeyUser{user: user, passkeys: s.store.Passkeys(user.ID)}
	for _, p := range u.passkeys {
		var c webauthn.Credential
		if err := json.Unmarshal(p.Credential, &c); err != nil {
			s.log.Error("failed to read a stored passkey", "user_id", user.ID, "error", err)
			continue
		}
		u.credentials = append(u.credentials, c)
	}
	return u
}

// BeginPasskey begins to add a passkey for a signed-in user on a page of origin.
// options is the JSON argument of navigator.credentials.create. ceremonyID must be
// passed to FinishPasskey with the answer.
func (s *Service) BeginPasskey(
	_ context.Context, user store.User, origin string,
) (options json.RawMessage, ceremonyID string, err error) {
	if err := s.checkPasskeyCount(user); err != nil {
		return nil, "", err
	}
	u := s.passkeyUser(user)
	return s.challenge(origin, user.ID, func(party *webauthn.WebAuthn) (any, *webauthn.SessionData, error) {
		return party.BeginRegistration(u,
			webauthn.WithExclusions(webauthn.Credentials(u.credentials).CredentialDescriptors()))
	})
}

// challenge begins a ceremony of a user, "" to sign in.
func (s *Service) challenge(
	origin, user string, begin func(*webauthn.WebAuthn) (any, *webauthn.SessionData, error),
) (options json.RawMessage, ceremonyID string, err error) {
	party, err := relyingParty(origin)
	if err != nil {
		return nil, "", err
	}
	challenge, data, err := begin(party)
	if err == nil {
		options, err = json.Marshal(challenge)
	}
	if err != nil {
		return nil, "", fmt.Errorf("beginning a ceremony: %w", err)
	}
	ceremonyID, err = s.sealer.sealCeremony(user, origin, data, s.now())
	return options, ceremonyID, err
}

// FinishPasskey adds the passkey in response, the browser's credential as JSON.
func (s *Service) FinishPasskey(
	ctx context.Context, user store.User, origin, ceremonyID, name string, response []byte,
) (store.Passkey, error) {
	if name = strings.TrimSpace(name); name == "" {
		name = "Passkey"
	}
	data, err := s.sealer.openCeremony(ceremonyID, origin, user.ID, s.now())
	if err != nil {
		return store.Passkey{}, err
	}
	if err := checkPasskeyName(name); err != nil {
		return store.Passkey{}, err
	}
	party, err := relyingParty(origin)
	if err != nil {
		return store.Passkey{}, err
	}
	credential, err := register(party, passkeyUser{user: user}, *data, response)
	if err != nil {
		s.log.Warn("failed to add a passkey", "user_id", user.ID, "reason", reason(err))
		if errors.Is(err, ErrPasskey) {
			return store.Passkey{}, err
		}
		return store.Passkey{}, store.Errorf(ErrPasskey,
			"the passkey could not be added because the device's answer does not match this page: start again")
	}
	record, err := json.Marshal(credential)
	if err != nil {
		return store.Passkey{}, fmt.Errorf("adding a passkey: %w", err)
	}
	p := store.Passkey{ID: credential.ID, Name: name, Credential: record, CreatedAt: s.stamp()}
	if err := s.checkPasskeyCount(user); err != nil {
		return store.Passkey{}, err
	}
	switch err := s.store.AddPasskey(ctx, user.ID, data.Challenge, p); {
	case errors.Is(err, store.ErrUsed):
		return store.Passkey{}, errLate
	case errors.Is(err, store.ErrExists):
		return store.Passkey{}, store.Errorf(ErrPasskey, "this passkey has already been added")
	case err != nil:
		return store.Passkey{}, err
	}
	s.log.Info("passkey added", "user_id", user.ID, "account_id", user.Account)
	return p, nil
}

func (s *Service) checkPasskeyCount(user store.User) error {
	if n := len(s.store.Passkeys(user.ID)); n >= maxPasskeys {
		return store.Errorf(ErrPasskey, "you already have %d passkeys: remove one that you no longer use", n)
	}
	return nil
}

func register(party *webauthn.WebAuthn, u passkeyUser, data webauthn.SessionData, response []byte) (
	*webauthn.Credential, error,
) {
	if len(response) > maxResponse {
		return nil, errResponse
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return nil, err
	}
	if !parsed.Response.AttestationObject.AuthData.Flags.HasUserVerified() {
		return nil, errUnverified
	}
	return party.CreateCredential(u, data, parsed)
}

// errUnverified replaces an error of the library with a more helpful message.
var errUnverified = store.Errorf(ErrPasskey,
	"the device did not ask for a PIN, fingerprint or face: set a PIN on the security key, or use another device")

func checkPasskeyName(name string) error {
	switch {
	case utf8.RuneCountInString(name) > maxName:
		return store.Errorf(ErrPasskey, "the name of the passkey is too long: it can have at most %d characters", maxName)
	case !text.IsPrintable(name):
		return store.Errorf(ErrPasskey, "the name of the passkey contains unprintable characters")
	}
	return nil
}

// BeginPasskeySignIn begins to sign in a user with a passkey for the host of
// origin. options is the JSON argument of navigator.credentials.get.
func (s *Service) BeginPasskeySignIn(
	_ context.Context, address, origin string,
) (options json.RawMessage, ceremonyID string, err error) {
	if err := s.guard.checkAddress(fair.Parse(address), s.now()); err != nil {
		return nil, "", err
	}
	return s.challenge(origin, "", func(party *webauthn.WebAuthn) (any, *webauthn.SessionData, error) {
		return party.BeginDiscoverableLogin()
	})
}

// FinishPasskeySignIn signs in the user whose passkey created response. The name
// and the password of the attempt are ignored. It returns ErrPasskey, a
// *ThrottledError, or an error of the store.
func (s *Service) FinishPasskeySignIn(
	ctx context.Context, a Attempt, origin, ceremonyID string, response []byte,
) (Signed, error) {
	if err := cmp.Or(s.Local(), s.guard.checkAddress(fair.Parse(a.Address), s.now())); err != nil {
		return Signed{}, err
	}
	user, id, err := s.assert(ctx, origin, ceremonyID, response)
	if err != nil {
		return Signed{}, s.passkeyFailure(a, err)
	}
	signed, err := s.beginSession(ctx, user, MethodPasskey, a)
	if err != nil {
		return Signed{}, err
	}
	// As with passwords: a passkey that was removed meanwhile must not leave a
	// session behind.
	if !slices.ContainsFunc(s.store.Passkeys(user.ID), func(p store.Passkey) bool { return bytes.Equal(p.ID, id) }) {
		_ = s.SignOut(ctx, signed.Session)
		return Signed{}, s.passkeyFailure(a, errUnknownPasskey)
	}
	return signed, nil
}

// assert verifies a passkey's signature and records its use.
func (s *Service) assert(ctx context.Context, origin, ceremonyID string, response []byte) (store.User, []byte, error) {
	data, err := s.sealer.openCeremony(ceremonyID, origin, "", s.now())
	if err != nil {
		return store.User{}, nil, err
	}
	party, err := relyingParty(origin)
	if err != nil {
		return store.User{}, nil, err
	}
	if len(response) > maxResponse {
		return store.User{}, nil, errResponse
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return store.User{}, nil, err
	}
	if !parsed.Response.AuthenticatorData.Flags.HasUserVerified() {
		return store.User{}, nil, errUnverified
	}
	found, credential, err := party.ValidatePasskeyLogin(s.findPasskeyUser, *data, parsed)
	if err != nil {
		return store.User{}, nil, err
	}
	u := found.(passkeyUser)
	return u.user, credential.ID, s.notePasskey(ctx, u, credential, data.Challenge)
}

func (s *Service) findPasskeyUser(_, handle []byte) (webauthn.User, error) {
	user, ok := s.store.User(string(handle))
	if !ok {
		return nil, errUnknownPasskey
	}
	return s.passkeyUser(user), nil
}

// notePasskey stores the counter, the time of use and the answered challenge, unless the counter has changed since
// it was read, or the challenge was answered before. If the counter went back, the passkey was copied. The copies
// cannot be distinguished, so both are rejected from then on.
func (s *Service) notePasskey(
	ctx context.Context, u passkeyUser, credential *webauthn.Credential, challenge string,
) error {
	i := slices.IndexFunc(u.passkeys, func(p store.Passkey) bool { return bytes.Equal(p.ID, credential.ID) })
	if i < 0 {
		return errUnknownPasskey
	}
	record, err := json.Marshal(credential)
	if err != nil {
		return fmt.Errorf("recording the use of a passkey: %w", err)
	}
	p := u.passkeys[i]
	old := p.Credential
	p.Credential = record
	if !credential.Authenticator.CloneWarning {
		now := s.stamp()
		p.LastUsedAt = &now
	}
	switch err := s.store.UpdatePasskey(ctx, u.user.ID, challenge, old, p); {
	case errors.Is(err, store.ErrUsed):
		return errLate
	case errors.Is(err, store.ErrNotFound):
		return errUnknownPasskey
	case errors.Is(err, store.ErrConflict):
		return store.Errorf(ErrPasskey, "this passkey was used twice at the same time: try again")
	case err != nil:
		return err
	}
	if credential.Authenticator.CloneWarning {
		return store.Errorf(ErrPasskey,
			"this passkey may have been copied: its counter went backwards. Sign in another way, then remove the passkey %q "+
				"in Settings and add a new one", p.Name)
	}
	return nil
}

// passkeyFailure counts and logs a rejected passkey, and returns an error for the
// user. The library's errors are only logged.
func (s *Service) passkeyFailure(a Attempt, err error) error {
	_, fromLibrary := errors.AsType[*protocol.Error](err)
	if !fromLibrary && !errors.Is(err, ErrPasskey) {
		return err
	}
	s.guard.addressFailed(fair.Parse(a.Address), s.now())
	s.logFailure(a.Address, MethodPasskey, reason(err))
	if fromLibrary {
		return errUnknownPasskey
	}
	return err
}

var errUnknownPasskey = store.Errorf(ErrPasskey,
	"this passkey is unknown, or was created for another address: sign in with a password, and add it in Settings")

var errResponse error = protocol.ErrParsingData.WithDetails("the answer is too long")

// reason returns the part of an error that may be logged. Other fields of the
// library's errors contain challenges and client data.
func reason(err error) string {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e.Details
	}
	return err.Error()
}

// HasUsers reports whether any user exists. The first one is created with a setup
// link.
func (s *Service) HasUsers() bool { return s.store.UserCount() > 0 }

// Passkeys returns the passkeys of a user.
func (s *Service) Passkeys(userID string) []store.Passkey { return s.store.Passkeys(userID) }

// Identities returns the identities of a user at issuers.
func (s *Service) Identities(userID string) []store.UserIdentity { return s.store.Identities(userID) }

// RemovePasskey removes a passkey. Sessions that it started stay valid.
func (s *Service) RemovePasskey(ctx context.Context, user store.User, id []byte) error {
	err := s.store.RemovePasskey(ctx, user.ID, id)
	if store.Committed(err) {
		s.log.Info("passkey removed", "user_id", user.ID, "account_id", user.Account, "passkey_id",
			base64.RawURLEncoding.EncodeToString(id))
	}
	return err
}
