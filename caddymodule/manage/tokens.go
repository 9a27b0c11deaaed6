package manage

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Token is a listed management token.
type Token struct {
	store.Token
	// UserName is for people; User is the id.
	UserName string `json:"user_name" column:"USER"`
}

// CreateToken asks for a management token.
type CreateToken struct {
	Name   string   `json:"name" need:"required" help:"What the token is for"`
	User   string   `json:"user" need:"filled" help:"The name or id of the user that it acts for; operators must name one" flaghelp:"The name or id of the user that it acts for (required)"`
	Rights []string `json:"rights" format:"list" help:"The rights of the token (default read)"`
	Role   string   `json:"role" need:"filled" help:"A role to restrict it to: admin, member or viewer (default that of the user)"`

	ExpiresAt *time.Time `json:"expires_at" flag:"-" help:"When it expires (default never)"`
}

// CreatedToken is the answer to [CreateToken]. The secret is in no other answer.
type CreatedToken struct {
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	User      string       `json:"user"`
	Rights    store.Rights `json:"rights"`
	Role      store.Role   `json:"role"`
	Token     string       `json:"token"`
	CreatedAt time.Time    `json:"created_at"`
	ExpiresAt *time.Time   `json:"expires_at"`
}

// Tokens lists the management tokens of all users of the account that the caller may see.
func (s *Service) Tokens(ctx context.Context) ([]Token, error) {
	tokens, err := list(ctx, s, s.store.Tokens, s.tokenOf)
	if own := s.owner(ctx); own != "" {
		tokens = slices.DeleteFunc(tokens, func(t Token) bool { return t.User != own })
	}
	return tokens, err
}

// CreateToken creates a management token. A token cannot create another one: revoking
// it would not lock out its thief.
func (s *Service) CreateToken(ctx context.Context, c CreateToken) (CreatedToken, error) {
	account, err := s.accountForPeople(ctx)
	if err != nil {
		return CreatedToken{}, err
	}
	rights := store.RightRead
	if c.Rights != nil {
		if rights, err = store.ParseRights(c.Rights); err != nil {
			return CreatedToken{}, err
		}
	}
	caller := CallerFrom(ctx)
	if caller.Operator && c.User == "" {
		return CreatedToken{}, faultf(store.ErrInvalid, "a management token acts for a user; name the user in `user`")
	}
	u, err := s.user(account, cmp.Or(c.User, caller.User))
	if err != nil {
		return CreatedToken{}, err
	}
	if !caller.Operator && u.ID != caller.User {
		return CreatedToken{}, faultf(ErrForbidden, "you can create management tokens only for yourself")
	}
	return change(ctx, s, func(account string) (CreatedToken, write, error) {
		t := store.Token{Account: account, User: u.ID, Name: c.Name, Rights: rights, Role: cmp.Or(store.Role(c.Role), u.Role)}
		if c.ExpiresAt != nil {
			t.ExpiresAt = new(c.ExpiresAt.UTC().Truncate(time.Millisecond))
		}
		t, secret, err := s.store.CreateToken(ctx, t)
		return CreatedToken{
			ID: t.ID, Name: t.Name, User: t.User, Rights: t.Rights, Role: t.Role, Token: secret, CreatedAt: t.CreatedAt,
			ExpiresAt: t.ExpiresAt,
		}, write{"token.create", t.ID, t.Name, []any{"user", u.ID, "rights", t.Rights.Names(), "role", t.Role}}, err
	})
}

// RevokeToken revokes a management token by id. When it returns, new requests with it fail.
func (s *Service) RevokeToken(ctx context.Context, id string) (Token, error) {
	return change(ctx, s, func(account string) (Token, write, error) {
		tokens, err := s.Tokens(ctx)
		if err != nil {
			return Token{}, write{}, err
		}
		t, ok := find(tokens, func(t Token) bool { return t.ID == id })
		if !ok {
			return Token{}, write{}, faultf(store.ErrNotFound, "management token %q not found in account %q", id, account)
		}
		return t, write{"token.revoke", id, t.Name, nil}, s.store.RemoveToken(ctx, account, id)
	})
}

func (s *Service) tokenOf(t store.Token) Token {
	v := Token{Token: t}
	if u, ok := s.store.User(t.User); ok {
		v.UserName = u.Name
	}
	return v
}
