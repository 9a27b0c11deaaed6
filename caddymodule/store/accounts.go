package store

import (
	"context"
	"fmt"
	"strings"
)

type accountRecord struct {
	header
	Account
}

func (r *accountRecord) place() key { return key{id: r.ID} }

var accountKind = &kind[accountRecord, *accountRecord]{
	dir: "accounts/", what: KindAccount,
	in:    func(r *records) *collection[*accountRecord] { return &r.accounts },
	amend: func(_ *records, r *accountRecord, c *Change) { c.Account = r.ID },
}

// Account returns the account with this id.
func (s *Store) Account(id string) (Account, bool) {
	r, ok := accountKind.named(s.view.Load(), id)
	return r.Account, ok
}

// Accounts returns all accounts by id.
func (s *Store) Accounts() []Account {
	return list(accountKind.of(s.view.Load(), ""), func(r *accountRecord) (Account, bool) { return r.Account, true })
}

// maxAccountID is the length of a DNS label.
const maxAccountID = 63

// CreateAccount creates an account.
func (s *Store) CreateAccount(ctx context.Context, id string) (Account, error) {
	notAllowed := func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if id == "" || len(id) > maxAccountID || strings.ContainsFunc(id, notAllowed) {
		return Account{}, Errorf(ErrInvalid, "invalid account id %.80q: use 1 to %d lower-case letters, digits and dashes", id, maxAccountID)
	}
	return update(ctx, s, "creating the account", func(t *tx) (Account, error) {
		if accountKind.load(t, "", id) != nil {
			return Account{}, Errorf(ErrExists, "the account %q already exists: choose another id", id)
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
		t.delete(markAccount(id), markPairings(id), dirRecent+id)
		return nil
	})
	if err != nil {
		return err
	}
	// The rest is invalid without the account. If this fails, the sweeper tries again.
	if err := s.sweep(ctx); err != nil {
		s.log.Warn("failed to remove the remaining records of a removed account", "account_id", id, "error", err)
	}
	return nil
}

func checkEmpty(t *tx, id string) error {
	var has []string
	for _, kind := range []struct{ what, dir string }{
		{"users", userKind.dir}, {"connectors", connectorKind.dir}, {"deployments", deploymentKind.dir}, {"keys", keyKind.dir},
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
			has = append(has, fmt.Sprintf("%s (%d)", kind.what, n))
		}
	}
	if len(has) > 0 {
		return Errorf(ErrInUse, "the account %q still has %s: remove or revoke them first", id, strings.Join(has, ", "))
	}
	return nil
}
