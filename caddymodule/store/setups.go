package store

import (
	"cmp"
	"context"
	"time"
)

// SetupLife is how long a set-up code can be traded.
const SetupLife = 15 * time.Minute

// maxOpenSetups bounds the set-up codes of a user that can be traded.
const maxOpenSetups = 20

// Setup is a set-up code, which the machine of a person trades once for a key. The code is not stored.
type Setup struct {
	ID        string    `json:"id"`
	Account   string    `json:"account"`
	Key       KeyFields `json:"key"`
	CreatedBy Actor     `json:"created_by,omitzero"`
	ExpiresAt time.Time `json:"expires_at"`
}

type setupRecord struct {
	header
	Setup
	Role Role   `json:"role,omitempty"` // of the creator at the time
	Hash digest `json:"hash"`
}

func (r *setupRecord) key() recordKey { return recordKey{r.Account, r.ID} }
func (r *setupRecord) check() error   { return checkHash(r.Hash) }

var setupKind = &kind[setupRecord, *setupRecord]{
	dir: "setups/", prefix: prefixSetup, remains: true,
	collection: func(r *records) *collection[*setupRecord] { return &r.setups },
	index:      func(r *setupRecord) digest { return r.Hash },
}

// CreateSetup creates a set-up code for a key with these fields. The code is not shown again.
func (s *Store) CreateSetup(ctx context.Context, account string, fields KeyFields) (Setup, string, error) {
	k, _, err := s.newKey(ctx, account, fields) // checks the fields
	if err != nil {
		return Setup{}, "", err
	}
	maker, _ := s.User(k.CreatedBy.User)
	code := newCode(prefixUse)
	hash, _ := hashCode(prefixUse, code)
	r := &setupRecord{Role: maker.Role, Hash: hash, Setup: Setup{
		newID(prefixSetup, s.now()), account, k.KeyFields, k.CreatedBy, s.time().Add(SetupLife),
	}}
	err = s.update(ctx, "creating the code", func(t *tx) error {
		if _, err := t.account(account); err != nil {
			return err
		}
		open := 0 // concurrent writes may exceed the bound a little
		for other := range setupKind.owned(s.view.Load(), account) {
			if other.CreatedBy.User == r.CreatedBy.User && !s.ended(other.Setup) {
				open++
			}
		}
		if open >= maxOpenSetups {
			return Errorf(ErrConflict, "you already have %d unused codes: use some of them, or wait until they expire", open)
		}
		setupKind.create(t, r)
		return checkOwner(t, k)
	})
	return r.Setup, code, err
}

var errNoSetup = Errorf(ErrNotFound,
	"the code is wrong, used or expired: create a new one in the console, under Keys, Set up a client")

// FindSetup returns the set-up code, of any account. It fails with ErrNotFound if the code cannot be traded. Its
// creator must have the same role as when it created the code.
func (s *Store) FindSetup(ctx context.Context, code string) (Setup, error) {
	hash, _ := hashCode(prefixUse, code) // the zero hash of an invalid code matches no record
	r, ok := setupKind.byHash(s.view.Load(), hash)
	if !ok { // another gateway may just have created it
		if err := s.Refresh(ctx); err != nil {
			return Setup{}, err
		}
		r, ok = setupKind.byHash(s.view.Load(), hash)
	}
	v := s.view.Load()
	maker, _ := userKind.byID(v, r.CreatedBy.User)
	token, exists := tokenKind.byID(v, r.CreatedBy.Token)
	if _, owned := userKind.byID(v, r.Key.Owner); !ok || maker.Role != r.Role || !owned && r.Key.Owner != "" ||
		r.CreatedBy.Token != "" && (!exists || token.Expired(s.now())) || s.ended(r.Setup) {
		return Setup{}, errNoSetup
	}
	return r.Setup, nil
}

func (s *Store) ended(code Setup) bool { return !s.now().Before(code.ExpiresAt) }

// UseSetup trades a code that FindSetup has returned for a key with this name, for a client. The same write revokes
// the key of this name, owner and client, if there is one, and returns its id.
func (s *Store) UseSetup(ctx context.Context, code Setup, name, client string) (
	k Key, secret, former string, err error,
) {
	code.Key.Name = name
	r, secret, err := s.newKey(ctx, code.Account, code.Key)
	if err != nil {
		return Key{}, "", "", err
	}
	r.Client = client
	err = s.write(ctx, func(t *tx) error {
		if setupKind.load(t, code.Account, code.ID) == nil || s.ended(code) {
			return errNoSetup
		}
		setupKind.remove(t, code.Account, code.ID)
		if err := cmp.Or(checkOwner(t, r), keyKind.add(t, r)); err != nil {
			return err
		}
		old, _ := findKey(t, r.Account, name)
		if former = ""; old == nil || old.RevokedAt != nil || old.Client != client || old.Owner != r.Owner {
			return takeKeyName(t, r)
		}
		former = old.ID
		old.revoke(t)
		t.confirmed()
		t.put(r.namePath(), &nameRecord{ID: r.ID})
		return nil
	})
	return r.Key, secret, former, err
}
