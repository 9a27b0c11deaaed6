package store

import (
	"cmp"
	"context"
	"time"
)

// maxOpenSetups bounds the set-up codes of a user that can be traded. Concurrent writes may exceed it a little.
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
	open := list(setupKind.owned(s.view.Load(), account), func(r *setupRecord) (Setup, bool) {
		return r.Setup, r.CreatedBy.User == maker.ID && !s.ended(r.Setup)
	})
	if len(open) >= maxOpenSetups {
		return Setup{}, "", Errorf(ErrConflict,
			"you already have %d unused codes: use some of them, or wait until they expire", len(open))
	}
	code := newCode(prefixUse)
	setup := Setup{newID(prefixSetup, s.now()), account, k.KeyFields, k.CreatedBy, s.time().Add(PairingLife)}
	err = s.update(ctx, "creating the code", func(t *tx) error {
		err := cmp.Or(checkOwner(t, k), checkGroup(t, k))
		setup.Key.Group = k.Group
		setupKind.create(t, &setupRecord{Setup: setup, Role: maker.Role, Hash: hashCode(prefixUse, code)})
		return err
	})
	return setup, code, err
}

var errNoSetup = Errorf(ErrNotFound,
	"the code is wrong, was already used, or has expired: create a new one in the console, under Keys, Set up a client")

// FindSetup returns the set-up code, of any account. It fails with ErrNotFound if the code cannot be traded. Its
// creator must have the same role as when it created the code. Another gateway may just have created it: see Refresh.
func (s *Store) FindSetup(code string) (Setup, error) {
	v := s.view.Load()
	r, ok := setupKind.byHash(v, hashCode(prefixUse, code))
	maker, _ := userKind.byID(v, r.CreatedBy.User)
	token, exists := tokenKind.byID(v, r.CreatedBy.Token)
	if !ok || s.ended(r.Setup) || maker.Role != r.Role ||
		r.CreatedBy.Token != "" && (!exists || token.Expired(s.now())) {
		return Setup{}, errNoSetup
	}
	return r.Setup, nil
}

func (s *Store) ended(code Setup) bool { return !s.now().Before(code.ExpiresAt) }

// UseSetup trades a code that FindSetup has returned for a key with this name, for a client. If such a trade has
// already made a key of this name, owner and client, which is valid, it only gets a new secret: what others have set
// stays. Its former secret ends after DefaultGrace: the answer may get lost.
func (s *Store) UseSetup(ctx context.Context, code Setup, name, client string) (Key, string, error) {
	code.Key.Name = name
	r, secret, err := s.newKey(ctx, code.Account, code.Key)
	if err != nil {
		return Key{}, "", err
	}
	r.Client = client
	k, err := update(ctx, s, "using the code", func(t *tx) (Key, error) {
		if setupKind.load(t, code.Account, code.ID) == nil || s.ended(code) {
			return Key{}, errNoSetup
		}
		setupKind.remove(t, code.Account, code.ID)
		if err := cmp.Or(checkOwner(t, r), checkGroup(t, r)); err != nil {
			return Key{}, err
		}
		now := s.time()
		old, err := findKey(t, r.Account, name)
		if err == nil && old.State(now) == KeyValid && old.Client == client && old.Owner == r.Owner {
			if old.LeftGroup = checkGroup(t, old) != nil; old.LeftGroup {
				return Key{}, Errorf(ErrConflict, "the key %q is suspended, because %s: change its group, or revoke it first",
					old.Name, old.Suspension())
			}
			old.rotate(ctx, r.Hash, r.Shown, now, DefaultGrace)
			t.confirmed()
			keyKind.save(t, old)
			return old.Key, nil
		}
		return r.Key, cmp.Or(keyKind.add(t, r), takeKeyName(t, r), checkPeople(t, r))
	})
	return k, secret, err
}
