package store

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
)

// DefaultAccount is the id of the account that every gateway has.
const DefaultAccount = "default"

// Account owns keys, connectors, deployments and users.
type Account struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
	Limits    Limits    `json:"limits,omitzero"`
}

// Key authenticates API calls. Its secret is not stored.
type Key struct {
	ID        string    `json:"id"`
	Account   string    `json:"account"`
	Name      string    `json:"name"`
	Scope     string    `json:"scope"`
	CreatedAt time.Time `json:"created_at"`
	// LastUsedAt is nil when the key was never used. It is the one field that
	// runs ahead of the file, by the few seconds that Touch saves up.
	LastUsedAt *time.Time `json:"last_used_at"`
	RevokedAt  *time.Time `json:"revoked_at"` // nil: the key is valid
	CreatedBy  Actor      `json:"created_by,omitzero"`
	ChangedBy  Actor      `json:"changed_by,omitzero"` // who revoked it
}

// Connector is a process that may hold a tunnel.
type Connector struct {
	ID        string    `json:"id"`
	Account   string    `json:"account"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
	// Pairing is the id of the pairing that its credentials come from; "": they
	// came with a token.
	Pairing string `json:"pairing,omitempty"`
	// RotatedAt is when a new secret took the place of the former; nil: never.
	RotatedAt *time.Time `json:"rotated_at,omitempty"`
	// Rotation is the change of the secret that is under way; nil: none is.
	Rotation  *Rotation `json:"rotation,omitempty"`
	CreatedBy Actor     `json:"created_by,omitzero"`
	ChangedBy Actor     `json:"changed_by,omitzero"` // who last rotated or replaced it
	// LastSeenAt is when it was online last, or a few minutes before if the
	// gateway was killed; nil: never. It is not stored with the record.
	LastSeenAt *time.Time `json:"last_seen_at,omitempty"`
}

// Rotation is the change of a connector's secret. Until the connector has shown
// that it keeps a new one, the former is valid as well.
type Rotation struct {
	Since time.Time `json:"since"`
	// ByHand: a person brings the new token to the connector, so that it is not
	// offered one on its tunnel.
	ByHand bool `json:"by_hand,omitempty"`
	// Problem is why the connector could not keep what it was offered, in its
	// own words; "" while it has reported nothing.
	Problem string `json:"problem,omitempty"`
}

// Deployment is a public model name and where it goes. What the store gives out
// shares its Connectors, which must not be changed.
type Deployment struct {
	Account    string   `json:"account"`
	Name       string   `json:"name"`
	Connectors []string `json:"connectors"`         // ids, at least one: each has the model
	Upstream   string   `json:"upstream,omitempty"` // "": the connector's routes decide, or its only upstream
	Model      string   `json:"model,omitempty"`    // "": the connector's routes decide, or the public name
	// MaxConcurrency is how many requests may run at a time, on all connectors
	// together; 0: any number.
	MaxConcurrency int `json:"max_concurrency,omitempty"`
	// Options are adjustments for its model server.
	Options   compat.Options `json:"options,omitzero"`
	CreatedAt time.Time      `json:"created_at"`
	UpdatedAt time.Time      `json:"updated_at"`
	CreatedBy Actor          `json:"created_by,omitzero"`
	ChangedBy Actor          `json:"changed_by,omitzero"` // who set it last
}

// The kinds of records that Change names.
const (
	KindAccount    = "account"
	KindKey        = "key"
	KindConnector  = "connector"
	KindDeployment = "deployment"
	KindUser       = "user"
	KindSession    = "session"
	KindLink       = "link"
	KindToken      = "token"
	KindPairing    = "pairing"
)

// The states of a key.
const (
	KeyValid   = "valid"
	KeyRevoked = "revoked"
)

// Change is a change of a record, for subscribers.
type Change struct {
	Kind    string // KindAccount, …
	Account string
	ID      string // of a deployment: its name
	Name    string // of a key, a connector or a deployment
	Removed bool   // it is gone; a key also when it is revoked
	// State and Was are the states after and before the change, "" where the record
	// does not exist: of a key KeyValid or KeyRevoked, of a pairing its state, of a
	// connector when its secret was last rotated. Others have none.
	State, Was string
}

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
