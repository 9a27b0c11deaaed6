package store

import (
	"cmp"
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
)

// DefaultAccount is the id of the account that every gateway has.
const DefaultAccount = "default"

// Account owns keys, connectors, deployments and users.
type Account struct {
	ID        string    `json:"id" column:"ID"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at" column:"CREATED,date"`
	Limits    Limits    `json:"limits,omitzero"`
	// GroupsOnly means that keys which count for no group may be used for nothing.
	GroupsOnly bool `json:"groups_only,omitempty"`
	// KeyDefaults are the defaults of new keys.
	KeyDefaults KeyDefaults `json:"key_defaults,omitzero"`
}

// Connector is a process that may hold a tunnel.
type Connector struct {
	ID        string    `json:"id" column:"ID"`
	Account   string    `json:"account"`
	Name      string    `json:"name" column:"NAME"`
	CreatedAt time.Time `json:"created_at"`
	// Pairing is the id of the pairing that created its credentials; "": they were
	// created as a token.
	Pairing string `json:"pairing,omitempty"`
	// RotatedAt is when the secret was last replaced by a new one; nil: never.
	RotatedAt *time.Time `json:"rotated_at,omitempty"`
	// PreviousUntil is the end of the secret before the last rotation; nil: there is none.
	PreviousUntil *time.Time `json:"previous_until,omitempty"`
	CreatedBy     Actor      `json:"created_by,omitzero"`
	ChangedBy     Actor      `json:"changed_by,omitzero"` // who last rotated or replaced it
	// LastSeenAt is when it was last online, possibly a few minutes too early if the
	// gateway was killed; nil: never. It is stored separately.
	LastSeenAt *time.Time `json:"last_seen_at,omitempty"`
	// LastTunnel is what its last tunnel has shown; nil: not known. It is stored with LastSeenAt.
	LastTunnel *LastTunnel `json:"last_tunnel,omitempty"`
}

// LastTunnel is what is known of a connector that may be offline.
type LastTunnel struct {
	Remote  string   `json:"remote"`
	Version string   `json:"version"`
	OS      string   `json:"os"`
	Models  []string `json:"models,omitempty"` // that its model servers listed, at most 100
}

// Deployment is a public model name and its route. Deployments returned by the store share
// their Connectors and AlsoAs, which must not be changed.
type Deployment struct {
	Account    string   `json:"account"`
	Name       string   `json:"name" column:"NAME"`
	Connectors []string `json:"connectors"` // ids, at least one; each serves the model
	// Upstream is the name of the upstream. "": the connector's routes decide, or its only upstream.
	Upstream string `json:"upstream,omitempty" column:"UPSTREAM"`
	// Model is the name at the model server. "": the connector's routes decide, or the public name.
	Model string `json:"model,omitempty" column:"MODEL"`
	// AlsoAs are more names that clients may ask for: exact ones, and patterns with the wildcards * and ?.
	AlsoAs []string `json:"also_as,omitempty" column:"ALSO AS"`
	// Fallback is the name of the deployment that serves requests which no connector of this one accepts; "": none.
	Fallback string `json:"fallback,omitempty" column:"FALLBACK"`
	// MaxConcurrency bounds the running requests on all connectors together; 0: no
	// limit.
	MaxConcurrency int `json:"max_concurrency,omitempty" column:"MAX"`
	// Kind is what the model is for.
	Kind ModelKind `json:"kind" column:"KIND"`
	// Options are adjustments for its model server.
	Options   compat.Options `json:"options,omitzero" column:"OPTIONS"`
	CreatedAt time.Time      `json:"created_at"`
	UpdatedAt time.Time      `json:"updated_at" column:"UPDATED,date"`
	CreatedBy Actor          `json:"created_by,omitzero"`
	ChangedBy Actor          `json:"changed_by,omitzero"` // who set it last
}

// ModelKind is what a model is for.
type ModelKind string

// The kinds of models.
const (
	ChatModel       ModelKind = "chat"       // text from a prompt
	EmbeddingsModel ModelKind = "embeddings" // vectors from texts

	// Kinds that refuse nothing: they choose the test, the examples, and what the console shows.
	RerankModel        ModelKind = "rerank"        // documents by relevance
	TranscriptionModel ModelKind = "transcription" // text from recordings
	SpeechModel        ModelKind = "speech"        // recordings from text
	ImageModel         ModelKind = "image"         // images from text
)

// ModelKinds are the kinds of models, the default first.
var ModelKinds = []ModelKind{
	ChatModel, EmbeddingsModel, RerankModel, TranscriptionModel, SpeechModel, ImageModel,
}

// ModelKind returns what the model is for.
func (d *Deployment) ModelKind() ModelKind { return cmp.Or(d.Kind, ChatModel) }

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
	KindGroup      = "group"
	KindIdentity   = "identity"    // of the gateway; no account
	KindEdge       = "edge"        // also its first report, and the end of its reports; no account
	KindReport     = "edge report" // each later report
)

// Change is a change of a record, for subscribers.
type Change struct {
	Kind    string // KindAccount, …
	Account string
	ID      string // of a deployment: its name
	Name    string // of a key, a connector or a deployment
	Removed bool   // removed; for a key also revoked
	// State and Was are the states of a key or a pairing after and before the change, "" if the record does not
	// exist. A key changes to KeyExpired when it expires, without a change of its record.
	State, Was string
	// Expiring is set if nothing has changed, but the key expires in this time.
	Expiring time.Duration
	// Revision is that of the record, or of the removed one.
	Revision int64
}

// Actor is the author of a change. The zero value is the gateway itself.
type Actor struct {
	User string `json:"user,omitempty"` // id; "": not a user
	Name string `json:"name"`           // of the user at the time, or of another kind of actor
	// Token is the id of the management token that was used, TokenName its name.
	Token     string `json:"token,omitempty"`
	TokenName string `json:"token_name,omitempty"`
}

// Label returns the name of the actor and of its token, for users.
func (a Actor) Label() string {
	if a.Token == "" {
		return a.Name
	}
	return a.Name + " (token " + a.TokenName + ")"
}

type actorKey struct{}

// WithActor returns a context whose writes are attributed to a.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

func actor(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a
}
