package manage

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Caller is the identity that performs an operation.
type Caller struct {
	// Account is the account of the operation. Users are confined to it; for operators,
	// "" is the default account.
	Account string
	// User is the id of the user, Name the display name of the caller.
	User, Name string
	// Session is the id of the session that the user signed in with; empty if
	// a management token was used.
	Session string
	// ConfirmedAt is when the user last entered a password or a passkey in it.
	ConfirmedAt time.Time
	// Token is the id of the management token that was used instead, TokenName
	// its name, and Rights what it is restricted to.
	Token, TokenName string
	Rights           store.Rights
	// Role, if it is not empty, restricts the caller in addition to the role of the user.
	Role store.Role
	// From is the address of the caller, "" if it is the gateway itself.
	From string
	// Operator is set for requests from the admin endpoint. Operators may do everything in every account.
	Operator bool
}

// label returns the name of the caller for log lines and records.
func (c Caller) label() string {
	switch {
	case c.Name != "":
		return c.Name
	case c.Operator:
		return "operator"
	}
	return c.User
}

// creator returns the caller as the creator of a link, which is removed with its creator.
func (c Caller) creator() string { return cmp.Or(c.User, c.label()) }

type callerKey struct{}

// WithCaller returns a context for operations of c. Records that are written with it
// name c as their creator.
func WithCaller(ctx context.Context, c Caller) context.Context {
	ctx = store.WithActor(ctx, store.Actor{User: c.User, Name: c.label(), Token: c.Token, TokenName: c.TokenName})
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns the caller. Without [WithCaller] it is the zero Caller, who may
// do nothing: an entry point without authentication fails closed.
func CallerFrom(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// inAccount returns the context of a request that names an account, "" for none. For
// users, other accounts do not exist.
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

// account returns the account of the operation.
func (s *Service) account(ctx context.Context) (string, error) {
	c := CallerFrom(ctx)
	if c.Account == "" && !c.Operator {
		return "", faultf(ErrForbidden, "you are not signed in; sign in, or send a management token")
	}
	id := cmp.Or(c.Account, store.DefaultAccount)
	switch _, ok, err := store.FindFresh(ctx, s.store, id, s.store.Account); {
	case err != nil:
		return "", err
	case !ok:
		return "", errNoAccount(id)
	}
	return id, nil
}

func errNoAccount(id string) error { return faultf(store.ErrNotFound, "account %q not found", id) }

// accountForPeople is account for operations on users and their credentials. A management token may not perform
// them: a stolen token could create a user that outlasts it. Nor may an unconfirmed session, see
// [Service.Confirmed].
func (s *Service) accountForPeople(ctx context.Context) (string, error) {
	account, err := s.account(ctx)
	if err != nil {
		return "", err
	}
	return account, s.mayManagePeople(ctx)
}

// mayManagePeople is the check of accountForPeople.
func (s *Service) mayManagePeople(ctx context.Context) error {
	if c := CallerFrom(ctx); !c.Operator && c.Session == "" {
		return faultf(ErrForbidden, "a management token cannot add, invite or remove people, or create password links or "+
			"management tokens; sign in to the console to do this")
	}
	return s.Confirmed(ctx)
}

// Confirmed returns an error that wraps [ErrUnconfirmed] if the caller's session
// was not confirmed within [signin.ConfirmedFor]. A stolen session must not create
// access that outlasts it.
func (s *Service) Confirmed(ctx context.Context) error {
	c := CallerFrom(ctx)
	if c.Operator || s.now().Before(c.ConfirmedAt.Add(signin.ConfirmedFor)) {
		return nil
	}
	return faultf(ErrUnconfirmed,
		`confirm that it is you: POST {"password": "…"} to /console/api/sessions/confirm, or open /console/confirm; then `+
			"try again within %d minutes", int(signin.ConfirmedFor.Minutes()))
}

// tokenMay checks that a management token has one of the rights that an operation needs. Operations without rights
// are not for tokens.
func tokenMay(c Caller, needs store.Rights) error {
	switch {
	case c.Token == "" || c.Rights&needs != 0:
		return nil
	case needs == 0:
		return faultf(ErrForbidden, "a management token cannot do this, whatever its rights; sign in to the console to do "+
			"this")
	}
	return faultf(ErrForbidden, "the management token %q has the rights %s, but this needs %s; create one with that "+
		"right in the console, under Settings",
		c.TokenName, c.Rights, strings.Join(needs.Names(), " or "))
}

// operator checks that the caller is an operator. Methods for operators call it in addition to the check by the
// table of operations: Go code may call them directly, as `caddy gateway up` does.
func operator(ctx context.Context) error {
	if !CallerFrom(ctx).Operator {
		return faultf(ErrForbidden, "only the operator of the gateway can do this, with `caddy gateway` on its machine")
	}
	return nil
}
