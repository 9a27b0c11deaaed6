package manage

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Caller is who asks for an operation.
type Caller struct {
	// Account is the one that the caller works in. Users are confined to it; "" is the
	// default one for operators.
	Account string
	// User is the id of a user of it, Name what people call the caller.
	User, Name string
	// Session is the id of the session that the user signed in with; empty if
	// a management token was used.
	Session string
	// ConfirmedAt is when the user last gave a password or a passkey in it.
	ConfirmedAt time.Time
	// Token is the id of the management token that was used instead, TokenName
	// its name, and Rights are what it may be used for.
	Token, TokenName string
	Rights           store.Rights
	// Operator is the person who runs the gateway, who comes by the admin endpoint and
	// may do everything in every account.
	Operator bool
}

// by is how the audit lines and records name the caller.
func (c Caller) by() string {
	switch {
	case c.Name != "":
		return c.Name
	case c.Operator:
		return "operator"
	}
	return c.User
}

// maker is how links know the caller, with whom they end: by the id, if it is a
// user.
func (c Caller) maker() string { return cmp.Or(c.User, c.by()) }

type callerKey struct{}

// WithCaller returns a context for what c asks for. What is written with it
// names c as its maker.
func WithCaller(ctx context.Context, c Caller) context.Context {
	ctx = store.WithActor(ctx, store.Actor{User: c.User, Name: c.by(), Token: c.Token, TokenName: c.TokenName})
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns who asks. Without [WithCaller] it is the zero Caller, who may do
// nothing: an entry point that forgot to ask for credentials must not be open.
func CallerFrom(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// inAccount returns the context of a request that names an account, "" for none. An
// account of others does not exist for users.
func inAccount(ctx context.Context, id string) (context.Context, error) {
	c := CallerFrom(ctx)
	switch {
	case id == "" || id == c.Account:
		return ctx, nil
	case !c.Operator:
		return ctx, errNoAccount(id)
	}
	c.Account = id
	return WithCaller(ctx, c), nil
}

// account returns the account that the caller works in.
func (s *Service) account(ctx context.Context) (string, error) {
	c := CallerFrom(ctx)
	if c.Account == "" && !c.Operator {
		return "", faultf(ErrForbidden, "you are not signed in; sign in, or send a management token")
	}
	id := cmp.Or(c.Account, store.DefaultAccount)
	if _, ok := s.store.Account(id); !ok {
		return "", errNoAccount(id)
	}
	return id, nil
}

func errNoAccount(id string) error { return faultf(store.ErrNotFound, "account %q not found", id) }

// accountOfPerson is account for operations on what lets people in. A management
// token may not perform them: a thief of one could create a user, and stay when the
// token is revoked. Nor may a session alone, see Confirmed.
func (s *Service) accountOfPerson(ctx context.Context) (string, error) {
	account, err := s.account(ctx)
	if err != nil {
		return "", err
	}
	return account, s.mayLetIn(ctx)
}

// mayLetIn is the check of accountOfPerson.
func (s *Service) mayLetIn(ctx context.Context) error {
	if c := CallerFrom(ctx); !c.Operator && c.Session == "" {
		return faultf(ErrForbidden, "a management token cannot add, invite or remove people, or create links for new passwords or other management tokens; sign in to the console and do it there")
	}
	return s.Confirmed(ctx)
}

// Confirmed returns an error that wraps [ErrUnconfirmed] if the caller's session
// was not confirmed within the last minutes. A thief of a session, who does not
// know the password, must not get access that outlasts it.
func (s *Service) Confirmed(ctx context.Context) error {
	c := CallerFrom(ctx)
	if c.Operator || s.now().Before(c.ConfirmedAt.Add(signin.ConfirmedFor)) {
		return nil
	}
	return faultf(ErrUnconfirmed, "confirm that it is you: send your password as {\"password\": \"…\"} by POST to /console/api/sessions/confirm, "+
		"or open /console/confirm; then ask again within %d minutes", int(signin.ConfirmedFor.Minutes()))
}

// tokenMay checks that a caller with a management token has one of the rights
// that a route needs. A route that needs none of them is not for tokens at all.
func tokenMay(c Caller, needs store.Rights) error {
	switch {
	case c.Token == "" || c.Rights&needs != 0:
		return nil
	case needs == 0:
		return faultf(ErrForbidden, "a management token cannot do this, whatever its rights; sign in to the console and do it there")
	}
	return faultf(ErrForbidden, "the management token %q has the rights %s, and this needs %s; create one with that right in the console, under Settings",
		c.TokenName, c.Rights, strings.Join(needs.Names(), " or "))
}

// operator checks that the caller is one.
func operator(ctx context.Context) error {
	if !CallerFrom(ctx).Operator {
		return faultf(ErrForbidden, "only the operator of the gateway may do this, with `caddy gateway` on its machine")
	}
	return nil
}
