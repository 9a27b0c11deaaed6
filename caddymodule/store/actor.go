package store

import "context"

// Actor is who made or changed a record. The zero value is the gateway itself.
type Actor struct {
	User string `json:"user,omitempty"` // id; "": not a user
	Name string `json:"name"`           // of the user then, or a word for who else it was
	// Token is the id of the management token that was used, TokenName its name.
	Token     string `json:"token,omitempty"`
	TokenName string `json:"token_name,omitempty"`
}

// By is the name of the actor and of its token, for people.
func (a Actor) By() string {
	if a.Token == "" {
		return a.Name
	}
	return a.Name + " (token " + a.TokenName + ")"
}

type actorKey struct{}

// WithActor returns a context whose writes are a's.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

func actor(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a
}
