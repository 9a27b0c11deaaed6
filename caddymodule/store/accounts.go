package store

import (
	"context"
	"fmt"
	"strings"
)

// maxAccountID is the length of a DNS label.
const maxAccountID = 63

// CreateAccount makes an account.
func (s *Store) CreateAccount(ctx context.Context, id string) (Account, error) {
	notAllowed := func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if id == "" || len(id) > maxAccountID || strings.ContainsFunc(id, notAllowed) {
		return Account{}, fail(ErrInvalid, "an account cannot have the id %.80q: give 1 to %d lower-case letters, digits and dashes", id, maxAccountID)
	}
	r := accountRecord{version{recordVersion}, Account{ID: id, Name: id, CreatedAt: s.time()}}
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, accountPath(id))
		if err != nil {
			return Txn{}, err
		}
		if item.Exists() {
			return Txn{}, fail(ErrExists, "there is an account %q already: give another id", id)
		}
		return Txn{If: []Compare{unchanged(item)}}.put(put{item.Key, r})
	})
	if err != nil {
		return Account{}, fmt.Errorf("creating the account: %w", err)
	}
	return r.Account, nil
}

// RemoveAccount removes an account that has no users, connectors, deployments
// and valid keys; else it fails with ErrInUse and says what it has. The
// default account stays.
func (s *Store) RemoveAccount(ctx context.Context, id string) error {
	if id == DefaultAccount {
		return fail(ErrInvalid, "the account %q cannot be removed: every gateway has it", id)
	}
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.account(ctx, id)
		if err != nil {
			return Txn{}, err
		}
		// First its mark, then what it has: when it gets something after that
		// was read, the mark has changed.
		mark, err := s.kv.Get(ctx, markAccount(id))
		if err != nil {
			return Txn{}, err
		}
		if err := s.checkEmpty(ctx, id); err != nil {
			return Txn{}, err
		}
		return Txn{
			If:   []Compare{unchanged(item), unchanged(mark)},
			Then: []Op{Delete(item.Key), Delete(mark.Key), Delete(markPairings(id)), Delete(recentPath(id))},
		}, nil
	})
	if err != nil {
		return fmt.Errorf("removing the account: %w", err)
	}
	// What is left is of no use without the account. The sweeper removes it
	// when this fails.
	if err := s.dropLeftovers(ctx, id); err != nil {
		s.log.Warn("removing what a removed account had", "account", id, "error", err)
	}
	return nil
}

func (s *Store) checkEmpty(ctx context.Context, id string) error {
	var has []string
	for _, kind := range []struct{ what, dir string }{
		{"users", dirUsers}, {"connectors", dirConnectors}, {"deployments", dirDeployments}, {"keys", dirKeys},
	} {
		snap, err := s.kv.Range(ctx, Prefix(kind.dir+id+"/"))
		if err != nil {
			return err
		}
		n := len(snap.Items)
		if kind.dir == dirKeys {
			for _, item := range snap.Items {
				if r, _, err := decodeKey(item); err == nil && r.RevokedAt != nil {
					n--
				}
			}
		}
		if n > 0 {
			has = append(has, fmt.Sprintf("%s (%d)", kind.what, n))
		}
	}
	if len(has) > 0 {
		return fail(ErrInUse, "the account %q still has %s: remove or revoke those first", id, strings.Join(has, ", "))
	}
	return nil
}

func (s *Store) dropLeftovers(ctx context.Context, id string) error {
	var keys []string
	for _, dir := range accountDirs() {
		snap, err := s.kv.Range(ctx, Prefix(dir+id+"/"))
		if err != nil {
			return err
		}
		for _, item := range snap.Items {
			keys = append(keys, item.Key)
		}
	}
	return s.drop(ctx, keys)
}

// accountDirs returns the directories of what an account may leave behind.
func accountDirs() []string {
	return []string{dirConnectorsSeen, dirKeys, dirLastUsed, dirLinks, dirPairings, dirTokens, dirTokensUsed, dirUsage}
}
