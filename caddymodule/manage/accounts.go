package manage

import (
	"context"
	"net/netip"

	"github.com/postern-dev/postern/caddymodule/store"
)

// CreateAccount asks for a new account.
type CreateAccount struct {
	ID     string `json:"id" need:"required" flag:"-" help:"1 to 63 of the characters a-z, 0-9 and -"`
	Limits givenLimits
}

// SetAccount changes the given limits of an account, for which 0 is the default or no limit, and
// what new keys get unless they are created with other values.
type SetAccount struct {
	ID     string `json:"-" path:"record"`
	Limits givenLimits

	KeyScope       *string  `json:"key_scope" help:"The deployments that new keys may use (default \"*\", all of them)"`
	KeyExpiresDays *int     `json:"key_expires_days" help:"Days until new keys expire; 0 is never" flag:"-"`
	KeyAllowedIPs  []string `json:"key_allowed_ips" help:"Networks that new keys may be used from; [] is any" flag:"key-allow-ip" flaghelp:"A network that new keys may be used from (may be repeated; default any)"`

	KeyLimits GivenUsageLimits `json:"key_limits" help:"Limits of new keys; 0 is no limit" flag:"key-" flaghelp:", of new keys"`
}

// Accounts lists the accounts, for operators.
func (s *Service) Accounts(ctx context.Context) ([]store.Account, error) {
	if err := operator(ctx); err != nil {
		return nil, err
	}
	accounts := s.store.Accounts()
	for i := range accounts {
		accounts[i].Limits = accounts[i].Limits.Effective()
	}
	return accounts, nil
}

// CreateAccount creates an account, for operators.
func (s *Service) CreateAccount(ctx context.Context, c CreateAccount) (store.Account, error) {
	return s.changeAccount(ctx, "account.create", func() (store.Account, fields, error) {
		var limits store.Limits
		c.Limits.apply(&limits)
		if err := (store.Account{Limits: limits}).Check(); err != nil {
			return store.Account{}, nil, err
		}
		a, err := s.store.CreateAccount(ctx, c.ID)
		before := fieldsOf(a)
		if err == nil && len(c.Limits) > 0 {
			a, err = s.store.SetAccount(ctx, c.ID, func(a *store.Account) { c.Limits.apply(&a.Limits) })
		}
		return a, before, err
	})
}

// SetAccount changes limits and key defaults of an account, for operators.
func (s *Service) SetAccount(ctx context.Context, a SetAccount) (store.Account, error) {
	return s.changeAccount(ctx, "account.set", func() (set store.Account, before fields, err error) {
		networks, err := store.ParseNetworks(a.KeyAllowedIPs)
		if err != nil {
			return set, nil, err
		}
		set, err = s.store.SetAccount(ctx, a.ID, func(account *store.Account) {
			before = fieldsOf(account)
			a.apply(account, networks)
		})
		return set, before, err
	})
}

// apply makes the changes.
func (a *SetAccount) apply(to *store.Account, networks []netip.Prefix) {
	a.Limits.apply(&to.Limits)
	d := &to.KeyDefaults
	set(&d.Scope, a.KeyScope)
	set(&d.ExpiresDays, a.KeyExpiresDays)
	if a.KeyAllowedIPs != nil {
		d.AllowedIPs = networks
	}
	a.KeyLimits.apply(&d.Limits)
}

// RemoveAccount removes an account that is empty, for operators.
func (s *Service) RemoveAccount(ctx context.Context, id string) (store.Account, error) {
	return s.changeAccount(ctx, "account.remove", func() (store.Account, fields, error) {
		a, ok := s.store.Account(id)
		if !ok {
			return store.Account{}, nil, errNoAccount(id)
		}
		return a, fieldsOf(a), s.store.RemoveAccount(ctx, id)
	})
}

// changeAccount is [change] for accounts. do returns also the fields before. The answer has the
// effective limits.
func (s *Service) changeAccount(ctx context.Context, operation string,
	do func() (store.Account, fields, error)) (store.Account, error) {
	if err := operator(ctx); err != nil {
		return store.Account{}, err
	}
	a, before, err := do()
	if !store.Made(err) {
		return store.Account{}, err
	}
	list := a.ID
	if _, ok := s.store.Account(a.ID); !ok {
		list = gatewayList // that of the account is removed with it
	}
	s.audit(ctx, operation, list, a.ID, a.Name, changed(before, fieldsOf(a))...)
	a.Limits = a.Limits.Effective()
	return a, err
}

func (limits givenLimits) apply(l *store.Limits) {
	for name, n := range limits {
		*l.Field(name) = n
	}
}
