package store

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/connector/text"
)

// KeyFields are the fields of a key that people set. Tags describe them for the management API and its commands, see
// manage.Field. The console's form is in console/keyform.go, and keyData in console/keys.go fills it.
type KeyFields struct {
	// Name is unique among the keys of the account that are not revoked.
	Name  string `json:"name" need:"required" editflag:"rename" edithelp:"The new name of the key" help:"What the key is for" column:"NAME"`
	Scope string `json:"scope" need:"filled" help:"The deployments it may use (new keys: default \"*\", all of them)" column:"SCOPE"`
	// ExpiresAt is nil if the key does not expire.
	ExpiresAt *time.Time `json:"expires_at" null:"never" flag:"expires" help:"When it expires (new keys: default never)" column:"EXPIRES,end"`
	// Owner is an id; "" is no owner.
	Owner string `json:"owner,omitempty" help:"The user who is responsible for it, by name or id; \"\" for none"`
	Note  string `json:"note,omitempty" help:"A note for people"`
	// DefaultModel is the name that requests without a model ask for, which need not exist; "": they fail.
	DefaultModel string `json:"default_model,omitempty" help:"The deployment of requests that name no model; \"\" for none"`
	// AllowedIPs are the addresses that clients may use the key from; none: all addresses.
	AllowedIPs []netip.Prefix     `json:"allowed_ips,omitempty" flag:"allow-ip" help:"Networks that it may be used from; [] is any" flaghelp:"A network that it may be used from (may be repeated; new keys: default any)"`
	Limits     limits.UsageLimits `json:"limits,omitzero" help:"Its limits; 0 is no limit"`
	// Priority is "" for PriorityNormal.
	Priority Priority `json:"priority,omitempty" help:"Which of the waiting requests go first: high, normal or low (default normal)"`
	PersonFields
	// Group is an id; "": the key counts for all groups of its owner.
	Group string `json:"group,omitempty" help:"The only group that it counts for, by name or id; \"\" for all groups of its owner"`
}

// Priority orders the waiting requests of keys.
type Priority string

// The priorities.
const (
	PriorityHigh   Priority = "high"
	PriorityNormal Priority = "normal"
	PriorityLow    Priority = "low"
)

// Priorities returns the priorities, the highest first.
func Priorities() []Priority { return []Priority{PriorityHigh, PriorityNormal, PriorityLow} }

// Key authenticates API calls. Its secrets are not stored.
type Key struct {
	ID      string `json:"id" column:"ID"`
	Account string `json:"account"`
	KeyFields
	CreatedAt time.Time `json:"created_at"`
	// Shown is the beginning and the end of the secret, by which people recognize it.
	Shown string `json:"shown" column:"KEY"`
	// SuspendedFrom is when the key is suspended, unless its owner signs in by an issuer; zero: never. It is not stored.
	SuspendedFrom time.Time `json:"suspended_from,omitzero"`
	// LastUsedAt is nil if the key was never used.
	LastUsedAt *time.Time `json:"last_used_at" column:"LAST USED,ago"`
	DisabledAt *time.Time `json:"disabled_at"` // nil: it is enabled
	// DisabledBy is the author of the last change that disabled the key; nil: it is enabled, or
	// the author is unknown.
	DisabledBy *Actor     `json:"disabled_by,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at"` // nil: it is not revoked
	// RotatedAt is when the secret was last replaced by a new one; nil: never.
	RotatedAt *time.Time `json:"rotated_at,omitempty"`
	// Previous is the secret before the last rotation, while it is valid.
	Previous  *PreviousSecret `json:"previous,omitempty"`
	CreatedBy Actor           `json:"created_by,omitzero"`
	RotatedBy *Actor          `json:"rotated_by,omitempty"`
	ChangedBy *Actor          `json:"changed_by,omitempty"` // the author of the last change
	// Client is the id of the client that got the key for a set-up code; "": none.
	Client string `json:"client,omitempty"`
	// LeftGroup is set if the key is suspended, because its owner is not in its group. It is not stored.
	LeftGroup bool `json:"left_group,omitempty"`
}

// PreviousSecret is a secret of a key that is valid in addition to the present one.
type PreviousSecret struct {
	Shown string    `json:"shown"`
	Until time.Time `json:"until"`
}

// The states of a key.
const (
	KeyValid     = "valid"
	KeyDisabled  = "disabled"
	KeyExpired   = "expired"
	KeyRevoked   = "revoked"
	KeySuspended = "suspended"
)

// State returns the state of the key at a time.
func (k Key) State(now time.Time) string {
	switch {
	case k.RevokedAt != nil:
		return KeyRevoked
	case k.expired(now):
		return KeyExpired
	case k.DisabledAt != nil:
		return KeyDisabled
	case k.LeftGroup, !k.SuspendedFrom.IsZero() && !now.Before(k.SuspendedFrom):
		return KeySuspended
	}
	return KeyValid
}

// Suspension returns why a key is, or is going to be, suspended; "" if it is not.
func (k Key) Suspension() string {
	switch {
	case k.LeftGroup:
		return "its owner is not in the group of the key, or the group was removed"
	case !k.SuspendedFrom.IsZero():
		return "its owner must sign in with the company's account"
	}
	return ""
}

// Changer returns the author of the last change, the zero Actor if there was none.
func (k Key) Changer() Actor {
	if k.ChangedBy == nil {
		return Actor{}
	}
	return *k.ChangedBy
}

func (k Key) expired(now time.Time) bool { return k.ExpiresAt != nil && !now.Before(*k.ExpiresAt) }

const (
	// MaxNote bounds the note of a key, in bytes.
	MaxNote = 500
	// MaxAllowedIPs bounds the networks of a key.
	MaxAllowedIPs = 100
	// DefaultGrace is how long the previous secret of a key stays valid; MaxGrace bounds it.
	DefaultGrace = 24 * time.Hour
	MaxGrace     = 30 * 24 * time.Hour
)

type keyRecord struct {
	header
	Key
	Hash digest `json:"hash"`
	// PreviousHash is that of Previous.
	PreviousHash digest `json:"previous_hash,omitzero"`
	// Forgotten are the last days on which people are forgotten, by the hashes of their names.
	Forgotten map[string]string `json:"forgotten,omitempty"`

	scope scope.Scope // parsed, within that of bound
	bound *bound      // nil: the account alone bounds the key
	live  *LiveKey
}

func (r *keyRecord) key() recordKey { return recordKey{r.Account, r.ID} }
func (r *keyRecord) label() string  { return r.Name }

func (r *keyRecord) state() string {
	switch {
	case r.RevokedAt != nil:
		return KeyRevoked
	case r.DisabledAt != nil:
		return KeyDisabled
	}
	return KeyValid
}

func (r *keyRecord) check() (err error) {
	if r.scope, err = scope.Parse(r.Scope); err != nil {
		return err
	}
	if (r.Previous == nil) != (r.PreviousHash == digest{}) {
		return errors.New("its previous secret is incomplete")
	}
	return checkHash(r.Hash)
}

var keyKind = &kind[keyRecord, *keyRecord]{
	dir: "keys/", prefix: prefixKey, seenAt: "last_used/", secret: prefixSecret, what: KindKey, remains: true,
	collection: func(r *records) *collection[*keyRecord] { return &r.keys },
	index:      func(r *keyRecord) digest { return r.Hash },
	former:     func(r *keyRecord) digest { return r.PreviousHash },
	nameOf:     (*keyRecord).namePath,
	amend:      func(_ *records, r *keyRecord, c *Change) { c.Removed = c.Removed || r.RevokedAt != nil },
	adopt: func(d *draft, old, next *keyRecord) {
		if d.keys = append(d.keys, next); old == nil {
			next.live = &LiveKey{}
			next.live.record.Store(next)
		} else {
			next.live = old.live
			d.updates = append(d.updates, next)
		}
	},
	// Requests that keep the LiveKey of a removed key find it revoked.
	removed: func(d *draft, old *keyRecord) {
		revoked := *old
		if revoked.RevokedAt == nil {
			revoked.RevokedAt = &d.now
		}
		d.updates = append(d.updates, &revoked)
	},
}

// namePath returns the path of the record of the key's name, "" if it is free for others.
func (r *keyRecord) namePath() string {
	if r.RevokedAt != nil {
		return ""
	}
	return keyNamePath(r.Account, r.Name)
}

// currentKey returns the key with its last use and its suspension, and without a secret that has ended.
func (s *Store) currentKey(r *keyRecord, now time.Time) Key {
	k := r.Key
	k.LastUsedAt, k.SuspendedFrom = r.use.last(), s.SuspendedFrom(r.Owner)
	if k.Previous != nil && !now.Before(k.Previous.Until) {
		k.Previous = nil
	}
	return k
}

// FindKey returns the key with this secret, even if it is refused. It takes no lock and
// allocates nothing. It looks up a SHA-256 hash, so its timing reveals nothing useful
// about secrets.
func (s *Store) FindKey(secret string) (Credential, bool) {
	hash, _ := hashSecret(prefixSecret, secret)
	r, ok := keyKind.byHash(s.view.Load(), hash)
	return Credential{r.live, s, hash}, ok
}

// Credential returns the key of an account with this id, as if it was found by its present secret.
func (s *Store) Credential(account, id string) (Credential, bool) {
	r, ok := keyKind.byID(s.view.Load(), id)
	return Credential{r.live, s, r.Hash}, ok && r.Account == account
}

// Key returns the key of an account with this id.
func (s *Store) Key(account, id string) (Key, bool) {
	r, ok := keyKind.byID(s.view.Load(), id)
	return s.currentKey(r, s.now()), ok && r.Account == account
}

// UsageLimits returns the limits of an account, or of something in it.
func (s *Store) UsageLimits(account string, of limits.Subject) limits.UsageLimits {
	v := s.view.Load()
	switch of.Of {
	case limits.OfAccount:
		a, _ := accountKind.byID(v, account)
		return a.Limits.UsageLimits
	case limits.OfKey:
		if k, _ := keyKind.byID(v, of.ID); k.Account == account {
			return k.Limits
		}
	case limits.OfPerson:
		id, _ := of.Person()
		if k, _ := keyKind.byID(v, id); k.Account == account {
			return k.PersonLimits
		}
	case limits.OfGroup:
		if g, _ := groupKind.byID(v, of.ID); g.Account == account {
			return g.Limits
		}
	}
	return limits.UsageLimits{}
}

// Keys returns the keys of an account, including revoked ones, in order of creation.
func (s *Store) Keys(account string) []Key {
	now := s.now()
	keys := keyKind.owned(s.view.Load(), account)
	return list(keys, func(r *keyRecord) (Key, bool) { return s.currentKey(r, now), true })
}

// CountKeys counts the keys of an account by their states.
func (s *Store) CountKeys(account string) map[string]int {
	count, now := make(map[string]int), s.now()
	for r := range keyKind.owned(s.view.Load(), account) {
		count[s.currentKey(r, now).State(now)]++
	}
	return count
}

// CreateKey creates a key. It returns the key with its secret, which is not shown again.
func (s *Store) CreateKey(ctx context.Context, account string, fields KeyFields) (Key, string, error) {
	r, secret, err := s.newKey(ctx, account, fields)
	if err != nil {
		return Key{}, "", err
	}
	created, err := update(ctx, s, "creating the key", func(t *tx) (Key, error) {
		if err := cmp.Or(checkGroup(t, r), keyKind.add(t, r), checkOwner(t, r), checkPeople(t, r)); err != nil {
			return Key{}, err
		}
		return r.Key, takeKeyName(t, r)
	})
	return created, secret, err
}

// newKey returns the record of a new key, and its secret.
func (s *Store) newKey(ctx context.Context, account string, fields KeyFields) (*keyRecord, string, error) {
	secret, hash := newSecret(prefixSecret)
	r := &keyRecord{Hash: hash, Key: Key{
		ID: newID(prefixKey, s.now()), Account: account, KeyFields: fields, CreatedAt: s.time(), Shown: shownSecret(secret),
		CreatedBy: actor(ctx),
	}}
	return r, secret, r.normalize(nil, s.now())
}

// normalize checks the fields that users set. old are those before, nil for a new key.
func (r *keyRecord) normalize(old *KeyFields, now time.Time) error {
	if err := InField("name", checkName("key", prefixKey, r.Name)); err != nil {
		return err
	}
	parsed, err := scope.Parse(r.Scope)
	if err != nil {
		return InField("scope", Errorf(ErrInvalid, "%v", err))
	}
	r.Scope, r.scope = parsed.String(), parsed
	if r.ExpiresAt != nil {
		r.ExpiresAt = new(r.ExpiresAt.UTC().Truncate(time.Millisecond))
		if r.expired(now) && (old == nil || old.ExpiresAt == nil || !r.ExpiresAt.Equal(*old.ExpiresAt)) {
			return Errorf(ErrInvalid, "the expiry of the key, %s, is in the past: set a later time, or disable the key "+
				"instead", r.ExpiresAt.Format(time.RFC3339))
		}
	}
	switch {
	case len(r.Note) > MaxNote:
		return InField("note", Errorf(ErrInvalid, "the note of the key is too long: %d bytes, of at most %d", len(r.Note),
			MaxNote))
	case r.Note != "" && !text.IsPrintable(r.Note):
		return InField("note", Errorf(ErrInvalid, "the note of the key contains unprintable characters"))
	case len(r.AllowedIPs) > MaxAllowedIPs:
		return InField("networks", Errorf(ErrInvalid, "the key has %d networks, but the maximum is %d: merge adjacent "+
			"ones", len(r.AllowedIPs), MaxAllowedIPs))
	}
	if r.DefaultModel != "" { // which may be published later
		if err := scope.CheckName(r.DefaultModel); err != nil {
			return InField("default_model", Errorf(ErrInvalid, "default_model: %v", err))
		}
	}
	if !slices.Contains(Priorities(), cmp.Or(r.Priority, PriorityNormal)) {
		return Errorf(ErrInvalid, "the priority of the key is %.40q, but must be %s, %s or %s", r.Priority, PriorityHigh,
			PriorityNormal, PriorityLow)
	}
	if r.Priority == PriorityNormal {
		r.Priority = ""
	}
	return cmp.Or(checkUsageLimits(r.Limits), r.PersonFields.normalize())
}

// checkOwner checks that the owner of a key is a user of its account.
func checkOwner(t *tx, r *keyRecord) error {
	if r.Owner == "" {
		return nil
	}
	if !checkID(prefixUser, r.Owner) {
		return Errorf(ErrInvalid, "the owner of the key, %.40q, is not the id of a user", r.Owner)
	}
	_, err := findUser(t, r.Account, r.Owner)
	return err
}

// takeKeyName records the name of a key, unless another key has it.
func takeKeyName(t *tx, r *keyRecord) error {
	if t.get(r.namePath()).Exists() {
		return InField("name", Errorf(ErrExists, "another key has the name %q: choose another name, or revoke that key "+
			"first", r.Name))
	}
	t.put(r.namePath(), &nameRecord{ID: r.ID})
	return nil
}
