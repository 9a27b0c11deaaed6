package manage

import (
	"context"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Accounts lists the accounts, for operators.
func (s *Service) Accounts(ctx context.Context) ([]store.Account, error) {
	if err := operator(ctx); err != nil {
		return nil, err
	}
	accounts := s.store.Accounts()
	for i := range accounts {
		accounts[i] = accountOf(accounts[i])
	}
	return accounts, nil
}

// CreateAccount makes an account, for operators. limits are those that differ
// from the defaults, by name.
func (s *Service) CreateAccount(ctx context.Context, id string, limits map[string]int) (store.Account, error) {
	if err := operator(ctx); err != nil {
		return store.Account{}, err
	}
	var l store.Limits
	setLimits(&l, limits)
	if err := l.Check(); err != nil {
		return store.Account{}, err
	}
	a, err := s.store.CreateAccount(ctx, id)
	if err == nil && len(limits) > 0 {
		a, err = s.store.SetLimits(ctx, id, func(set *store.Limits) { *set = l })
	}
	if err != nil {
		return store.Account{}, err
	}
	s.audit(ctx, "account.create", a.ID, a.ID, a.Name)
	return accountOf(a), nil
}

// SetAccount changes limits of an account, for operators: those that are named. 0
// is the default.
func (s *Service) SetAccount(ctx context.Context, id string, limits map[string]int) (store.Account, error) {
	if err := operator(ctx); err != nil {
		return store.Account{}, err
	}
	a, err := s.store.SetLimits(ctx, id, func(l *store.Limits) { setLimits(l, limits) })
	if err != nil {
		return store.Account{}, err
	}
	s.audit(ctx, "account.set", a.ID, a.ID, a.Name, "limits", limits)
	return accountOf(a), nil
}

func setLimits(l *store.Limits, limits map[string]int) {
	for name, n := range limits {
		if field := l.Field(name); field != nil {
			*field = n
		}
	}
}

// accountOf is an account as it is shown, with the limits that hold.
func accountOf(a store.Account) store.Account {
	a.Limits = a.Limits.Effective()
	return a
}

// RemoveAccount removes an account that is empty, for operators.
func (s *Service) RemoveAccount(ctx context.Context, id string) (store.Account, error) {
	if err := operator(ctx); err != nil {
		return store.Account{}, err
	}
	a, ok := s.store.Account(id)
	if !ok {
		return store.Account{}, faultf(store.ErrNotFound, "there is no account %q", id)
	}
	if err := s.store.RemoveAccount(ctx, id); err != nil {
		return store.Account{}, err
	}
	s.audit(ctx, "account.remove", a.ID, a.ID, a.Name)
	return accountOf(a), nil
}
