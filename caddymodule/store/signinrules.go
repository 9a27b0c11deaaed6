package store

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"time"
)

// SignInPolicy contains the rules of the configuration in force for signing in. By the zero value, users sign in by
// password and passkey only.
type SignInPolicy struct {
	Issuers  []string // URLs of OpenID Connect issuers, which are compared byte for byte
	LocalOff bool     // users cannot sign in by password and passkey
	// KeysNeed is how long the keys and management tokens of users work without a sign-in by an issuer; 0: always.
	KeysNeed time.Duration
	Lifetime time.Duration // of sessions that an issuer has begun; 0: DefaultLifetime
	// NoConsole is set if no site of the gateway serves the console. Sessions are then for others to end.
	NoConsole bool
}

const (
	// DefaultLifetime is the default of SignInPolicy.Lifetime.
	DefaultLifetime = 12 * time.Hour
	// policyInterval is how often the store looks for a policy that is not yet applied to the records.
	policyInterval = 5 * time.Second
	// MethodIssuer is the method of sessions by SignInByIssuer, and MethodRecovery of those by SignInByLink.
	MethodIssuer   = "issuer"
	MethodRecovery = "recovery"
	recoveryLife   = time.Hour
)

// allows reports whether a user can sign in by the issuer.
func (p *SignInPolicy) allows(issuer string) bool { return slices.Contains(p.Issuers, issuer) }

// lifetime returns how long sessions last that an issuer has begun.
func (p *SignInPolicy) lifetime() time.Duration { return cmp.Or(p.Lifetime, DefaultLifetime) }

// admits reports whether a session may be used.
func (p *SignInPolicy) admits(o *Session, now time.Time) bool {
	if o.Issuer != "" {
		return p.allows(o.Issuer) && now.Before(o.CreatedAt.Add(p.lifetime()))
	}
	return !p.LocalOff || o.Method == MethodRecovery
}

// hasWayIn reports whether a user can sign in without the passkey with a hash. The user, and a passkey on which that
// depends, must not change until t is committed.
func (p *SignInPolicy) hasWayIn(t *tx, u *userRecord, without string) bool {
	return slices.ContainsFunc(u.Identities, func(i UserIdentity) bool { return p.allows(i.Issuer) }) ||
		!p.LocalOff && (u.PasswordHash != "" || hasPasskey(t, u.ID, without))
}

var errLastWayIn = Errorf(ErrConflict, "the user could no longer sign in: link another identity first")

// SetSignInPolicy puts a policy in force, at each load of a configuration. Sessions that it does not admit are invalid
// at once, and removed soon, so that they do not come back with a later policy. Keys that it suspends are refused at
// once, and their running requests end within expiryLook.
func (s *Store) SetSignInPolicy(p SignInPolicy) { s.policy.Store(&p) }

// SignInPolicy returns the policy in force.
func (s *Store) SignInPolicy() SignInPolicy { return *s.policy.Load() }

// applyPolicy writes what the policy changes in the records: if it was loaded without the KV, as soon as that is back.
func (s *Store) applyPolicy(ctx context.Context) error {
	p := s.policy.Load()
	if p == s.appliedPolicy {
		return nil
	}
	if p.KeysNeed > 0 && s.view.Load().keysNeedSince.IsZero() {
		err := s.update(ctx, "noting when keys_need_sign_in began", func(t *tx) error {
			if !t.get(keysNeedPath).Exists() {
				t.put(keysNeedPath, &sinceRecord{Since: s.time()})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	now := s.now()
	err := s.endSessions(ctx, sessionKind.all(&s.view.Load().records),
		func(o *Session) bool { return !p.NoConsole && !p.admits(o, now) })
	if err == nil {
		s.appliedPolicy = p
	}
	return err
}

// keysNeedPath is the path of the record of the time at which keys_need_sign_in was first in force. It stays when the
// option is switched off, so that switching it on again gives no key more time.
const keysNeedPath = dirMarks + "keys_need_sign_in"

type sinceRecord struct {
	header
	Since time.Time `json:"since"`
}

func (d *draft) applyKeysNeed(e Event) error {
	r := sinceRecord{Since: d.keysNeedSince}
	if e.Deleted {
		return nil
	}
	err := decode(e.Item, &r)
	d.keysNeedSince = r.Since
	return err
}

// SuspendedFrom returns the time from which keys and management tokens of a user, who may have been removed, are
// suspended, unless the user signs in by an issuer. It is zero if they are not going to be suspended.
func (s *Store) SuspendedFrom(userID string) time.Time {
	p := s.policy.Load()
	if p.KeysNeed == 0 || userID == "" {
		return time.Time{}
	}
	v := s.view.Load()
	u, ok := userKind.byID(v, userID)
	last := u.SignedInAt
	if !ok {
		former, _ := formerKind.byID(v, userID)
		last = former.SignedInAt
	}
	switch {
	case v.keysNeedSince.IsZero(), last.IsZero() && !p.LocalOff:
		return time.Time{}
	case last.Before(v.keysNeedSince):
		last = v.keysNeedSince
	}
	return last.Add(p.KeysNeed)
}

// Suspended reports whether keys and management tokens of a user are suspended.
func (s *Store) Suspended(userID string, now time.Time) bool {
	from := s.SuspendedFrom(userID)
	return !from.IsZero() && !now.Before(from)
}

// UseOnce notes that the state of a sign-in by an issuer, of which this is the hash, was answered. It fails with
// ErrUsed if it had been. A state cannot be answered after until.
func (s *Store) UseOnce(ctx context.Context, state digest, until time.Time) error {
	return s.update(ctx, "using the state of the sign-in", func(t *tx) error {
		return recordAnswer(t, issuerStates, hex.EncodeToString(state[:]), until)
	})
}
