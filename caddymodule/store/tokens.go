package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// CreateToken makes a management token and returns it with its secret, which
// cannot be had again. Of t it takes account, user, name, rights and end. Names
// of tokens need not differ.
func (s *Store) CreateToken(ctx context.Context, t Token) (Token, string, error) {
	if err := checkLabel("token", t.Name); err != nil {
		return Token{}, "", err
	}
	if !checkID(prefixUser, t.User) {
		return Token{}, "", fail(ErrNotFound, "there is no such user in the account %.40q", t.Account)
	}
	if t.Rights == 0 || t.Rights&^AllRights != 0 {
		return Token{}, "", errNoRights()
	}
	if t.Expired(s.now()) {
		return Token{}, "", fail(ErrInvalid, "the end of the management token, %s, has passed already", t.ExpiresAt.UTC().Format(time.RFC3339))
	}
	secret := newSecret(prefixTokenSecret)
	hash, _ := hashSecret(prefixTokenSecret, secret)
	now := s.time()
	r := tokenRecord{version{recordVersion}, Token{
		ID: newID(prefixToken, s.now()), Account: t.Account, User: t.User, Name: t.Name, CreatedAt: now, Rights: t.Rights, ExpiresAt: t.ExpiresAt,
	}, hexDigest(hash)}
	err := s.update(ctx, func() (Txn, error) {
		item, _, err := s.findUser(ctx, t.Account, t.User)
		if err == nil {
			err = s.checkLimit(t.Account, KindToken)
		}
		if err != nil {
			return Txn{}, err
		}
		txn := Txn{If: []Compare{unchanged(item), {Key: tokenPath(t.Account, r.ID)}}}
		return txn.put(put{tokenPath(t.Account, r.ID), r})
	})
	if err != nil {
		return Token{}, "", fmt.Errorf("creating the token: %w", err)
	}
	return r.Token, secret, nil
}

// FindToken returns the management token with this secret, if it has not ended.
// It takes no lock and allocates nothing.
func (s *Store) FindToken(secret string) (Token, bool) {
	t, ok := s.tokenOf(secret)
	return t, ok && !t.Expired(s.now())
}

// ExpiredToken returns the management token with this secret if it has ended by
// itself, so that whoever still uses it can be told.
func (s *Store) ExpiredToken(secret string) (Token, bool) {
	t, ok := s.tokenOf(secret)
	return t, ok && t.Expired(s.now())
}

func (s *Store) tokenOf(secret string) (Token, bool) {
	hash, ok := hashSecret(prefixTokenSecret, secret)
	if !ok {
		return Token{}, false
	}
	v := s.view.Load()
	e, ok := v.tokensByHash.get(hash)
	if !ok {
		return Token{}, false
	}
	// A user who is removed takes the tokens along at once.
	_, ok = v.users.get(e.token.User)
	return e.current(), ok
}

// TouchToken is TouchSession for management tokens.
func (s *Store) TouchToken(t Token) {
	if e, ok := s.view.Load().tokens.get(t.ID); ok {
		s.note(e.use)
	}
}

// Tokens returns the management tokens of an account in the order of their
// creation.
func (s *Store) Tokens(account string) []Token {
	var out []Token
	v := s.view.Load()
	for _, e := range v.tokens.all() {
		if _, ok := v.users.get(e.token.User); ok && e.token.Account == account {
			out = append(out, e.current())
		}
	}
	slices.SortFunc(out, func(a, b Token) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// RemoveToken makes a management token invalid for good.
func (s *Store) RemoveToken(ctx context.Context, account, id string) error {
	unknown := fail(ErrNotFound, "there is no token %.40q in the account %.40q: give the id that the list of tokens shows", id, account)
	if !checkID(prefixToken, id) || !checkAccount(account) {
		return unknown
	}
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, tokenPath(account, id))
		if err != nil {
			return Txn{}, err
		}
		if !item.Exists() {
			return Txn{}, unknown
		}
		return Txn{If: []Compare{unchanged(item)}, Then: []Op{Delete(item.Key), Delete(tokenUsedPath(account, id))}}, nil
	})
	if err != nil {
		return fmt.Errorf("removing the token: %w", err)
	}
	return nil
}
