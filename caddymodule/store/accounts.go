package store

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/scope"
)

type accountRecord struct {
	header
	Account
}

func (r *accountRecord) key() recordKey { return recordKey{id: r.ID} }

var accountKind = &kind[accountRecord, *accountRecord]{
	dir: "accounts/", what: KindAccount,
	collection: func(r *records) *collection[*accountRecord] { return &r.accounts },
	amend:      func(_ *records, r *accountRecord, c *Change) { c.Account = r.ID },
	adopt: func(d *draft, old, next *accountRecord) {
		if old == nil || old.GroupsOnly != next.GroupsOnly {
			d.rebind(next.ID)
		}
	},
	removed: func(d *draft, old *accountRecord) { d.rebind(old.ID) },
}

// Account returns the account with this id.
func (s *Store) Account(id string) (Account, bool) {
	r, ok := accountKind.byID(s.view.Load(), id)
	return r.Account, ok
}

func errNoAccount(id string) error { return Errorf(ErrNotFound, "unknown account %.80q", id) }

// Accounts returns all accounts by id.
func (s *Store) Accounts() []Account {
	return list(accountKind.owned(s.view.Load(), ""), func(r *accountRecord) (Account, bool) { return r.Account, true })
}

// maxAccountID is the length of a DNS label.
const maxAccountID = 63

// CreateAccount creates an account.
func (s *Store) CreateAccount(ctx context.Context, id string) (Account, error) {
	notAllowed := func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if id == "" || len(id) > maxAccountID || strings.ContainsFunc(id, notAllowed) {
		return Account{}, Errorf(ErrInvalid, "invalid account id %.80q: use 1 to %d lower-case letters, digits and dashes",
			id, maxAccountID)
	}
	return update(ctx, s, "creating the account", func(t *tx) (Account, error) {
		if accountKind.load(t, "", id) != nil {
			return Account{}, Errorf(ErrExists, "the account %q already exists: choose another id", id)
		}
		if leftoverKind.load(t, "", id) != nil {
			if err := s.clearAccount(ctx, id); err != nil {
				return Account{}, err
			}
			leftoverKind.remove(t, "", id)
		}
		a := Account{ID: id, Name: id, CreatedAt: s.time()}
		accountKind.save(t, &accountRecord{Account: a})
		return a, nil
	})
}

// RemoveAccount removes an account without users, connectors, deployments and valid
// keys. Otherwise it fails with ErrInUse and lists them. The default account cannot
// be removed.
func (s *Store) RemoveAccount(ctx context.Context, id string) error {
	if id == DefaultAccount {
		return Errorf(ErrInvalid, "the account %q cannot be removed: every gateway has it", id)
	}
	err := s.update(ctx, "removing the account", func(t *tx) error {
		if _, err := t.account(id); err != nil {
			return err
		}
		// Read the mark before the records: a record added after they were read has
		// changed the mark.
		t.get(markAccount(id))
		if err := checkEmpty(t, id); err != nil {
			return err
		}
		accountKind.remove(t, "", id)
		leftoverKind.save(t, &leftoverRecord{ID: id, Since: s.time()})
		t.delete(markAccount(id), markNames(id), markPairings(id))
		t.confirmed()
		return nil
	})
	if !Committed(err) {
		return err
	}
	// The remaining records are invalid without the account. If this fails, the sweeper tries again.
	if err := s.clearAccount(ctx, id); err != nil {
		s.log.Warn("failed to remove the remaining records of a removed account", "account_id", id, "error", err)
	}
	return err
}

func checkEmpty(t *tx, id string) error {
	var remaining []string
	for _, kind := range []struct{ what, dir string }{
		{"users", userKind.dir},
		{"connectors", connectorKind.dir},
		{"deployments", deploymentKind.dir},
		{"keys", keyKind.dir},
	} {
		n := 0
		for _, item := range t.items(kind.dir + id + "/") {
			if kind.dir == keyKind.dir {
				if r, err := keyKind.decode(item); err == nil && r.RevokedAt != nil {
					continue
				}
			}
			n++
		}
		if n > 0 {
			remaining = append(remaining, fmt.Sprintf("%s (%d)", kind.what, n))
		}
	}
	if len(remaining) > 0 {
		return Errorf(ErrInUse, "the account %q still has %s: remove or revoke them first", id,
			strings.Join(remaining, ", "))
	}
	return nil
}

// Limits are the limits of an account. The limits of records keep one account from using up the
// memory and time of others; 0 selects their default.
type Limits struct {
	MaxKeys        int `json:"max_keys,omitempty" help:"How many keys it may have (default 1000)"`
	MaxConnectors  int `json:"max_connectors,omitempty" help:"How many connectors it may have (default 200)"`
	MaxDeployments int `json:"max_deployments,omitempty" help:"How many deployments it may have (default 2000)"`
	MaxUsers       int `json:"max_users,omitempty" help:"How many users it may have (default 100)"`
	MaxTokens      int `json:"max_tokens,omitempty" help:"How many tokens it may have (default 100)"`

	limits.UsageLimits `flaghelp:"All keys together: "`
}

const (
	// maxLimit is the largest value of a limit.
	maxLimit = 1_000_000
	// maxInvitations bounds the open invitations of an account.
	maxInvitations = 100
)

// Effective returns the limits with each 0 replaced by the default, if the limit has one.
func (l Limits) Effective() Limits {
	for _, f := range limitFields {
		if n := f.field(&l); *n == 0 {
			*n = f.normal
		}
	}
	return l
}

// limitField describes a limit: which records it counts, and its texts for users.
type limitField struct {
	kind   anyKind
	field  func(*Limits) *int
	normal int
	name   string // as in JSON
	what   string
	fix    string
}

var limitFields = []limitField{
	{keyKind, func(l *Limits) *int { return &l.MaxKeys }, 1000, "max_keys", "API keys", "remove revoked ones"},
	{
		connectorKind, func(l *Limits) *int { return &l.MaxConnectors }, 200, "max_connectors", "connectors",
		"remove one that is no longer in use",
	},
	{
		deploymentKind, func(l *Limits) *int { return &l.MaxDeployments }, 2000, "max_deployments", "deployments",
		"remove one that is no longer in use",
	},
	{userKind, func(l *Limits) *int { return &l.MaxUsers }, 100, "max_users", "users", "remove one who has left"},
	{
		tokenKind, func(l *Limits) *int { return &l.MaxTokens }, 100, "max_tokens", "management tokens",
		"revoke one that is no longer in use",
	},
}

// RecordLimitNames returns the names in JSON of the limits for records, in order. The others
// are [UsageLimitNames].
func RecordLimitNames() []string {
	names := make([]string, len(limitFields))
	for i, f := range limitFields {
		names[i] = f.name
	}
	return names
}

// Field returns a pointer to the limit with this name, nil if the name is unknown.
func (l *Limits) Field(name string) *int {
	for _, f := range limitFields {
		if f.name == name {
			return f.field(l)
		}
	}
	return l.UsageLimits.Field(name)
}

// Check fails with ErrInvalid if a limit or a default is out of range.
func (a Account) Check() error {
	for _, f := range limitFields {
		if n := *f.field(&a.Limits); n < 0 || n > maxLimit {
			return Errorf(ErrInvalid, "the limit %s is %d, but must be 1 to %d, or 0 for the default of %d", f.name, n,
				maxLimit, f.normal)
		}
	}
	if err := checkUsageLimits(a.Limits.UsageLimits); err != nil {
		return err
	}
	return a.KeyDefaults.check()
}

// checkLimit fails with ErrLimit if an account may not have another record of a kind.
// Concurrent writes may exceed a limit slightly: limits bound cost and need not be exact.
func (s *Store) checkLimit(account string, kind anyKind) error {
	v := s.view.Load()
	r, _ := accountKind.byID(v, account)
	limits := r.Limits.Effective()
	for _, f := range limitFields {
		limit := *f.field(&limits)
		if n := kind.count(v, account); f.kind == kind && n >= limit {
			return Errorf(ErrLimit, "the account %q has %d %s, and can have at most %d: %s, or ask the operator to raise the "+
				"limit with `caddy gateway account set %s --%s N`",
				account, n, f.what, limit, f.fix, account, strings.ReplaceAll(f.name, "_", "-"))
		}
	}
	return nil
}

// KeyDefaults are the properties of new keys that are not given.
type KeyDefaults struct {
	Scope       string             `json:"scope,omitempty"`        // "": all deployments
	ExpiresDays int                `json:"expires_days,omitempty"` // after the creation; 0: never
	AllowedIPs  []netip.Prefix     `json:"allowed_ips,omitempty"`
	Limits      limits.UsageLimits `json:"limits,omitzero"`
}

// maxExpiresDays bounds ExpiresDays.
const maxExpiresDays = 3660

func (d KeyDefaults) check() error {
	if d.Scope != "" {
		if _, err := scope.Parse(d.Scope); err != nil {
			return InField("scope", Errorf(ErrInvalid, "%v", err))
		}
	}
	switch {
	case d.ExpiresDays < 0 || d.ExpiresDays > maxExpiresDays:
		return Errorf(ErrInvalid, "new keys expire after %d days, but that must be 1 to %d, or 0 for never", d.ExpiresDays,
			maxExpiresDays)
	case len(d.AllowedIPs) > MaxAllowedIPs:
		return Errorf(ErrInvalid, "new keys have %d networks, but the maximum is %d: merge adjacent ones", len(d.AllowedIPs),
			MaxAllowedIPs)
	}
	return checkUsageLimits(d.Limits)
}

// SetAccount changes the limits, GroupsOnly and the defaults of new keys of an account. Existing records
// beyond the limits are kept. When it returns without an error, running requests that their keys no longer allow have
// been ended.
func (s *Store) SetAccount(ctx context.Context, id string, change func(*Account)) (Account, error) {
	return update(ctx, s, "changing the account", func(t *tx) (Account, error) {
		r, err := t.account(id)
		if err != nil {
			return Account{}, err
		}
		change(&r.Account)
		accountKind.save(t, r)
		if r.GroupsOnly {
			t.confirmed()
		}
		return r.Account, r.Account.Check()
	})
}

// checkUsageLimits fails with ErrInvalid if a limit is out of range.
func checkUsageLimits(l limits.UsageLimits) error {
	for _, name := range limits.Names() {
		if n := *l.Field(name); n < 0 || n > limits.MaxLimit {
			return InField(name, Errorf(ErrInvalid, "the limit %s is %d, but must be 1 to %d, or 0 for no limit", name, n,
				limits.MaxLimit))
		}
	}
	return nil
}
