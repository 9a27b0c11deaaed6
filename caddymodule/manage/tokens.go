package manage

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Token is a management token as it is listed.
type Token struct {
	store.Token
	// UserName is for people; User is the id.
	UserName string `json:"user_name"`
}

// CreateToken asks for a management token.
type CreateToken struct {
	Name string `json:"name" need:"required"`
	// User is whom the token acts for, by id or name. Operators have to name one;
	// for others it is the caller.
	User string `json:"user" need:"filled"`
	// Rights are what it may be used for; 0 is to read.
	Rights store.Rights `json:"rights"`
	// ExpiresAt is when it ends by itself; nil: never.
	ExpiresAt *time.Time `json:"expires_at"`
	Account   string     `json:"account"`
}

// CreatedToken is the answer to [CreateToken]: the only place of the secret.
type CreatedToken struct {
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	User      string       `json:"user"`
	Rights    store.Rights `json:"rights"`
	Token     string       `json:"token"`
	CreatedAt time.Time    `json:"created_at"`
	ExpiresAt *time.Time   `json:"expires_at"`
}

// RevokedToken is the answer to [Service.RevokeToken].
type RevokedToken struct {
	Token
	// Made is what it leaves behind.
	Made Made `json:"made"`
}

// Tokens lists the management tokens of all users of an account.
func (s *Service) Tokens(account string) ([]Token, error) {
	return list(s, account, s.store.Tokens, s.tokenOf)
}

// CreateToken makes a management token. A token cannot make another one: who
// found one could then not be locked out by revoking it.
func (s *Service) CreateToken(ctx context.Context, c CreateToken) (CreatedToken, error) {
	account, err := s.accountOfPerson(ctx, c.Account)
	if err != nil {
		return CreatedToken{}, err
	}
	caller := CallerFrom(ctx)
	switch {
	case caller.Operator && c.User == "":
		return CreatedToken{}, faultf(store.ErrInvalid, "a management token acts for a user; say which, as `user`")
	case c.User == "":
		c.User = caller.User
	}
	u, err := s.user(account, c.User)
	if err != nil {
		return CreatedToken{}, err
	}
	if !caller.Operator && u.ID != caller.User {
		return CreatedToken{}, faultf(ErrForbidden, "you can make management tokens for yourself only")
	}
	if c.Rights == 0 {
		c.Rights = store.RightRead
	}
	t, secret, err := s.store.CreateToken(ctx, store.Token{
		Account: account, User: u.ID, Name: c.Name, Rights: c.Rights, ExpiresAt: c.ExpiresAt,
	})
	if err != nil {
		return CreatedToken{}, err
	}
	s.audit(ctx, "token.create", account, t.ID, t.Name, "user", u.ID, "rights", t.Rights.Names())
	return CreatedToken{
		ID: t.ID, Name: t.Name, User: t.User, Rights: t.Rights, Token: secret, CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt,
	}, nil
}

// RevokeToken ends a management token. When it returns, new requests with it
// fail. What it has made stays, and is in the answer: see
// [Service.RevokeTokenAndMade].
func (s *Service) RevokeToken(ctx context.Context, account, id string) (RevokedToken, error) {
	return change(ctx, s, account, func(account string) (RevokedToken, write, error) {
		tokens := s.store.Tokens(account)
		i := slices.IndexFunc(tokens, func(t store.Token) bool { return t.ID == id })
		if i < 0 {
			return RevokedToken{}, write{}, faultf(store.ErrNotFound, "there is no management token %q in account %q", id, account)
		}
		err := s.store.RemoveToken(ctx, account, id)
		return RevokedToken{Token: s.tokenOf(tokens[i]), Made: s.madeBy(account, id)}, write{"token.revoke", id, tokens[i].Name, nil}, err
	})
}

func (s *Service) tokenOf(t store.Token) Token {
	v := Token{Token: t}
	if u, ok := s.store.User(t.User); ok {
		v.UserName = u.Name
	}
	return v
}
