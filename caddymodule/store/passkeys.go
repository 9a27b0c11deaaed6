package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// Passkey is a WebAuthn credential of a user.
type Passkey struct {
	ID         []byte          `json:"id"`
	Name       string          `json:"name"`
	Credential json.RawMessage `json:"credential"`
	CreatedAt  time.Time       `json:"created_at"`
	LastUsedAt *time.Time      `json:"last_used_at"` // nil: never
}

type passkeyRecord struct {
	header
	User string `json:"user"`
	Passkey

	hash string // of the passkey's id, which may be too long for a KV key
}

func (r *passkeyRecord) key() recordKey {
	if r.hash == "" { // the record is not in the view
		r.hash = hashPasskey(r.Passkey.ID)
	}
	return recordKey{r.User, r.hash}
}

func (r *passkeyRecord) check() error {
	if !checkID(prefixUser, r.User) || len(r.Passkey.ID) == 0 {
		return errors.New("it has no user or no id")
	}
	return nil
}

func hashPasskey(id []byte) string {
	hash := sha256.Sum256(id)
	return hex.EncodeToString(hash[:])
}

var passkeyKind = &kind[passkeyRecord, *passkeyRecord]{
	dir: "passkeys/", what: KindUser,
	collection: func(r *records) *collection[*passkeyRecord] { return &r.passkeys },
	index:      func(r *passkeyRecord) digest { return sha256.Sum256(r.Passkey.ID) },
	// A changed passkey is a change of its user.
	amend: func(all *records, r *passkeyRecord, c *Change) {
		if u, ok := all.users.byID.get(r.User); ok {
			*c = Change{Kind: KindUser, Account: u.Account, ID: u.ID}
		} else {
			c.Kind = ""
		}
	},
}

// Limits on passkeys. The maximum length of ids is defined by WebAuthn.
const (
	maxPasskeyID  = 1023
	maxCredential = 64 << 10
)

// Passkeys returns the passkeys of a user in order of creation.
func (s *Store) Passkeys(userID string) []Passkey {
	v := s.view.Load()
	if _, ok := userKind.byID(v, userID); !ok {
		return nil
	}
	out := list(passkeyKind.owned(v, userID), func(r *passkeyRecord) (Passkey, bool) {
		p := r.Passkey
		p.ID, p.Credential = bytes.Clone(p.ID), bytes.Clone(p.Credential)
		return p, true
	})
	slices.SortFunc(out, func(a, b Passkey) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), bytes.Compare(a.ID, b.ID))
	})
	return out
}

func checkPasskey(p Passkey) error {
	if err := checkLabel("passkey", p.Name); err != nil {
		return err
	}
	if len(p.ID) == 0 || len(p.ID) > maxPasskeyID {
		return Errorf(ErrInvalid, "the id of the passkey has %d bytes, not 1 to %d", len(p.ID), maxPasskeyID)
	}
	if len(p.Credential) > maxCredential || !json.Valid(p.Credential) {
		return Errorf(ErrInvalid, "the passkey cannot be stored: its credential is too long, or not JSON")
	}
	return nil
}

// AddPasskey adds a passkey to a user, which has answered a challenge, and sets its time of creation. The passkey must
// be new to the gateway. AddPasskey fails with ErrUsed if a passkey of the user has answered the challenge before.
func (s *Store) AddPasskey(ctx context.Context, userID, challenge string, p Passkey) error {
	if err := checkPasskey(p); err != nil {
		return err
	}
	p.CreatedAt = s.time()
	hash := hashPasskey(p.ID)
	return s.update(ctx, "adding the passkey", func(t *tx) error {
		if _, err := loadUser(t, userID); err != nil {
			return err
		}
		_, taken := passkeyKind.byHash(s.view.Load(), sha256.Sum256(p.ID))
		if taken || passkeyKind.load(t, userID, hash) != nil {
			return Errorf(ErrExists, "the passkey is already in use: sign in with it, or create another one")
		}
		if err := recordAnswer(t, userID, challenge, s.time()); err != nil {
			return err
		}
		passkeyKind.save(t, &passkeyRecord{User: userID, Passkey: p})
		return nil
	})
}

// UpdatePasskey replaces the passkey of a user with the id of p, which has answered a challenge, except for its time of
// creation. It fails with ErrUsed if a passkey of the user has answered the challenge before, and with ErrConflict if
// its credential is no longer old: the change was decided on an outdated counter.
func (s *Store) UpdatePasskey(ctx context.Context, userID, challenge string, old json.RawMessage, p Passkey) error {
	if err := checkPasskey(p); err != nil {
		return err
	}
	return s.update(ctx, "updating the passkey", func(t *tx) error {
		r := passkeyKind.load(t, userID, hashPasskey(p.ID))
		if r == nil {
			return errNoPasskey
		}
		switch err := recordAnswer(t, userID, challenge, s.time()); {
		case err != nil:
			return err
		case !bytes.Equal(r.Credential, old):
			return Errorf(ErrConflict, "it was used meanwhile")
		}
		next := &passkeyRecord{User: userID, Passkey: p}
		next.CreatedAt = r.CreatedAt
		passkeyKind.save(t, next)
		return nil
	})
}

// RemovePasskey removes a passkey from a user. It fails with ErrConflict if the user could then no longer sign in.
func (s *Store) RemovePasskey(ctx context.Context, userID string, id []byte) error {
	return s.update(ctx, "removing the passkey", func(t *tx) error {
		u, err := loadUser(t, userID)
		switch p := s.policy.Load(); {
		case err != nil:
			return err
		case passkeyKind.load(t, userID, hashPasskey(id)) == nil:
			return errNoPasskey
		case !p.LocalOff && !p.hasWayIn(t, u, hashPasskey(id)):
			return errLastWayIn
		}
		passkeyKind.remove(t, userID, hashPasskey(id))
		t.confirmed()
		return nil
	})
}

// hasPasskey reports whether a user has a passkey without this hash. That passkey must not change until t is committed.
func hasPasskey(t *tx, userID, hash string) bool {
	return slices.ContainsFunc(passkeyKind.loadAll(t, userID), func(r *passkeyRecord) bool {
		other := r.key().id
		return other != hash && passkeyKind.load(t, userID, other) != nil
	})
}

var errNoPasskey = Errorf(ErrNotFound, "the passkey was not found: it was already removed")

// answerRecord is the record of a challenge that a passkey has answered. A challenge takes one answer.
type answerRecord struct {
	header
	User      string    `json:"user"`
	Challenge string    `json:"challenge"`
	At        time.Time `json:"at"`
	Nonce     string    `json:"nonce"` // no two transactions put the same record, see KV
}

// answerLife is longer than a challenge can be answered, as the clocks of edges may differ.
const answerLife = 15 * time.Minute

func (r *answerRecord) key() recordKey      { return recordKey{r.User, r.Challenge} }
func (r *answerRecord) ended(w *sweep) bool { return w.now.Sub(r.At) >= answerLife }

var answerKind = &kind[answerRecord, *answerRecord]{
	dir:        "answers/",
	collection: func(r *records) *collection[*answerRecord] { return &r.answers },
}

// issuerStates stands for the user in answers to the states of sign-ins by an issuer.
const issuerStates = "issuer"

// recordAnswer records that a passkey of the user has answered a challenge. It fails with ErrUsed if one had.
// The record is kept for answerLife after at.
func recordAnswer(t *tx, userID, challenge string, at time.Time) error {
	if answerKind.load(t, userID, challenge) != nil {
		return Errorf(ErrUsed, "the challenge was answered already")
	}
	answerKind.save(t, &answerRecord{User: userID, Challenge: challenge, At: at, Nonce: rand.Text()})
	return nil
}
