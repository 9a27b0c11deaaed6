package manage

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// CreateAccount asks for a new account.
type CreateAccount struct {
	ID string `json:"id" need:"required" flag:"-" help:"1 to 63 of the characters a-z, 0-9 and -"`
	store.Limits
}

// AccountFields are the fields of an account that operators set: its limits, for which 0 is the default or no limit,
// and the defaults of new keys.
type AccountFields struct {
	store.Limits
	GroupsOnly bool `json:"groups_only" help:"Keys that count for no group may be used for nothing"`

	KeyScope       string             `json:"key_scope" help:"The deployments that new keys may use (default \"*\", all of them)"`
	KeyExpiresDays int                `json:"key_expires_days" flag:"key-expires" format:"days" help:"Days until new keys expire; 0 is never" flaghelp:"When new keys expire: days such as 90d, or never (default never)"`
	KeyAllowedIPs  []netip.Prefix     `json:"key_allowed_ips" flag:"key-allow-ip" help:"Networks that new keys may be used from; [] is any" flaghelp:"A network that new keys may be used from (may be repeated; default any)"`
	KeyLimits      limits.UsageLimits `json:"key_limits" flag:"key-" help:"Limits of new keys; 0 is no limit" flaghelp:"New keys: "`
}

// Accounts lists the accounts. Users see their own.
func (s *Service) Accounts(ctx context.Context) ([]store.Account, error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	accounts, all := s.store.Accounts(), CallerFrom(ctx).Operator
	accounts = slices.DeleteFunc(accounts, func(a store.Account) bool { return !all && a.ID != account })
	for i := range accounts {
		accounts[i].Limits = accounts[i].Limits.Effective()
	}
	return accounts, nil
}

// CreateAccount creates an account, for operators.
func (s *Service) CreateAccount(ctx context.Context, c CreateAccount) (store.Account, error) {
	return s.changeAccount(ctx, "account.create", operator(ctx), func() (store.Account, values, error) {
		if err := (store.Account{Limits: c.Limits}).Check(); err != nil {
			return store.Account{}, nil, err
		}
		a, err := s.store.CreateAccount(ctx, c.ID)
		before := valuesOf(a)
		if err == nil && c.Limits != (store.Limits{}) {
			a, err = s.store.SetAccount(ctx, c.ID, func(a *store.Account) { a.Limits = c.Limits })
		}
		return a, before, err
	})
}

// SetAccount changes the fields of an account, for operators. Admins of the default account may change that one: the
// limits of others keep their users from using up the gateway.
func (s *Service) SetAccount(ctx context.Context, id string, edit func(*AccountFields) error) (store.Account, error) {
	var refused error
	if c := CallerFrom(ctx); !c.Operator && (c.Account != store.DefaultAccount || id != c.Account) {
		refused = faultf(ErrForbidden, "only operators may change this account, with `caddy gateway account set` on the "+
			"gateway's machine; admins of the account %q may change that one", store.DefaultAccount)
	}
	return s.changeAccount(ctx, "account.set", refused, func() (set store.Account, before values, err error) {
		var failed error
		set, err = s.store.SetAccount(ctx, id, func(a *store.Account) {
			before = valuesOf(a)
			d := a.KeyDefaults
			f := AccountFields{a.Limits, a.GroupsOnly, d.Scope, d.ExpiresDays, d.AllowedIPs, d.Limits}
			if failed = edit(&f); failed == nil {
				a.Limits, a.GroupsOnly, a.KeyDefaults = f.Limits, f.GroupsOnly, store.KeyDefaults{
					Scope: f.KeyScope, ExpiresDays: f.KeyExpiresDays,
					AllowedIPs: f.KeyAllowedIPs, Limits: f.KeyLimits,
				}
			}
		})
		return set, before, cmp.Or(failed, err)
	})
}

// RemoveAccount removes an account that is empty, for operators.
func (s *Service) RemoveAccount(ctx context.Context, id string) (store.Account, error) {
	return s.changeAccount(ctx, "account.remove", operator(ctx), func() (store.Account, values, error) {
		a, ok := s.store.Account(id)
		if !ok {
			return store.Account{}, nil, errNoAccount(id)
		}
		return a, valuesOf(a), s.store.RemoveAccount(ctx, id)
	})
}

// changeAccount is [change] for accounts, unless the caller is refused. do also returns the values before the change.
// The answer contains the effective limits.
func (s *Service) changeAccount(ctx context.Context, operation string, refused error,
	do func() (store.Account, values, error),
) (store.Account, error) {
	if refused != nil {
		return store.Account{}, refused
	}
	a, before, err := do()
	if !store.Committed(err) {
		return store.Account{}, err
	}
	list := a.ID
	if _, ok := s.store.Account(a.ID); !ok {
		list = gatewayList // the account's own list is removed with it
	}
	s.audit(ctx, operation, list, a.ID, a.Name, changed(before, valuesOf(a))...)
	a.Limits = a.Limits.Effective()
	return a, err
}
