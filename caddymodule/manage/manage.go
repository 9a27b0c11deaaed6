// Package manage implements the management operations of a gateway and the JSON API for them. The table
// [Operations] describes each operation; docs/openapi.json is the reference.
//
// It does not depend on Caddy, the command line or the pages. Caddy's admin endpoint serves [Service.Handler] under
// /model_gateway, and the commands are its clients. The console calls the same operations, and serves the same API
// under /console/api.
//
// The server authenticates the caller and passes it by [WithCaller]. Users are confined to their account: other
// accounts are not found. Operators, who use the admin endpoint, name the account in the field "account" of the
// body or of the query; the default is "default".
//
// Errors are {"error": "text"}, as everywhere on Caddy's admin endpoint; the text names the fix. Each write is
// logged with the operation, the record and the caller, and added to the audit log of the account. Secrets appear
// only in the answer that creates them.
package manage

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/pairing"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/caddymodule/turns"
	"github.com/postern-dev/postern/connector/link"
)

// Tunnels is the interface of the tunnel hub.
type Tunnels interface {
	// Sessions lists the live tunnels, one at most per connector.
	Sessions() []tunnel.Info
	// Counters returns the totals since the process started.
	Counters() tunnel.Counters
	// Tunnel returns the tunnel that a request through a connector would use now.
	Tunnel(connectorID string) (t Tunnel, ok bool)
	// Recheck asks for the list of a model server again if it lacks the model of a connector's route, and reports
	// whether that is so.
	Recheck(connectorID string, to tunnel.Target) (missing bool)
}

// Tunnel is the live tunnel of one connector. The host of its requests is the
// name of an upstream.
type Tunnel interface{ http.RoundTripper }

// Endpoint contains the public addresses of the gateway.
type Endpoint struct {
	// URL is the base of the HTTP API without /v1, for example
	// "https://gw.example.com"; empty if it is not known.
	URL string
	// Console is the base URL of the console, for example
	// "https://gw.example.com/console/"; empty if it is not known.
	Console string
	// Verified: other machines can verify the sites at URL and Console, as they have
	// certificates of a public authority. On this machine, HTTP counts too.
	Verified bool
	// Root is the root certificate of Caddy's own authority as PEM, if that has issued the certificates of the sites.
	Root string
	// Exposed is set if the console is served over plain HTTP under a name other than this machine's, and the
	// configuration does not allow that.
	Exposed bool
	// Listen is the UDP address of the tunnel listener.
	Listen string
	// Public is the host:port that connectors dial; empty if it is not known.
	Public string
	// Pin is the hash of the gateway's tunnel identity, a part of tokens.
	Pin string
	// Warnings are the problems of the configuration of the sites.
	Warnings []string
	// DataDir is Caddy's data folder.
	DataDir string
}

// Token returns the tunnel token of a connector. It fails with [ErrNotReady] while the
// public address is not known: such a token would be unusable.
func (e Endpoint) Token(connectorID, secret string) (string, error) {
	switch {
	case e.Pin == "":
		return "", faultf(ErrNotReady, "the tunnel listener is not started yet")
	case e.Public == "":
		return "", faultf(ErrNotReady, "the address that connectors dial is not known; "+
			"add `public gw.example.com:7443` to the `model_gateway` block of the Caddyfile's global options and run `caddy "+
			"reload`")
	}
	return link.Token{
		Server: e.Public, URL: e.URL, Pin: e.Pin, Connector: connectorID, Secret: secret,
	}.Encode(), nil
}

// Options configures a [Service]. All but Webhooks, Cluster, Build, Folder, Logger and Now are required.
type Options struct {
	Store    *store.Store
	Tunnels  Tunnels
	Endpoint func() Endpoint // called at every use, as configuration reloads change it
	Pairing  *pairing.Service
	SignIn   *signin.Service
	Activity *activity.Log
	Observed *observed.Table
	// Limits is [limits.Limiter.Usage].
	Limits func(ctx context.Context, account string, of []limits.Subject) (limits.Usage, error)
	// Ask sends a request of the console to a model: see [serve.Server.Ask].
	Ask Ask
	// Load returns how many requests of a deployment run and wait at this gateway.
	Load func(account, deployment string) (running, queued int)
	// Server returns the state of a model server that loads one model at a time.
	Server func(account, connector, upstream string) turns.ServerState
	// Webhooks returns the webhooks of the configuration. nil: none.
	Webhooks func() []Webhook
	Cluster  Cluster           // nil: the gateway is alone
	Build    Build             // for status
	Folder   *downloads.Folder // of connectors to hand out; nil: none
	Logger   *slog.Logger      // takes the audit lines; nil discards
	Now      func() time.Time  // nil is time.Now
}

// Ask is the type of Options.Ask.
type Ask func(ctx context.Context, q *serve.Question, w http.ResponseWriter) (serve.Asked, error)

// Service performs the management operations. Its methods are safe for
// concurrent use. Errors wrap the sentinels of package store, or
// [ErrNotReady].
type Service struct {
	store    *store.Store
	tunnels  Tunnels
	endpoint func() Endpoint
	pairing  *pairing.Service
	signIn   *signin.Service
	activity *activity.Log
	observed *observed.Table
	limits   func(ctx context.Context, account string, of []limits.Subject) (limits.Usage, error)
	askModel Ask
	load     func(account, deployment string) (running, queued int)
	server   func(account, connector, upstream string) turns.ServerState
	webhooks func() []Webhook
	cluster  Cluster // nil: the gateway is alone
	build    Build
	folder   *downloads.Folder
	log      *slog.Logger
	now      func() time.Time

	api     http.Handler       // the JSON API, without a prefix
	models  singleflight.Group // requests for the models of upstreams
	plays   plays
	codes   *lru.Cache[string, struct{}] // the last set-up codes that were valid
	writers *lru.Cache[writer, *rate.Limiter]
}

// New returns a service over o.Store and o.Tunnels; it owns neither.
func New(o Options) *Service {
	s := &Service{
		store: o.Store, tunnels: o.Tunnels, endpoint: o.Endpoint,
		pairing: o.Pairing, signIn: o.SignIn, activity: o.Activity, limits: o.Limits, askModel: o.Ask,
		cluster: o.Cluster, webhooks: o.Webhooks, observed: o.Observed, load: o.Load, server: o.Server,
		build: o.Build, folder: cmp.Or(o.Folder, downloads.NewFolder("")),
		log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), now: o.Now,
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.webhooks == nil {
		s.webhooks = func() []Webhook { return nil }
	}
	s.codes, _ = lru.New[string, struct{}](1000) // no error: the size is positive
	s.writers, _ = lru.New[writer, *rate.Limiter](writersKept)
	s.api = s.newMux()
	return s
}

// Serving fails with [store.ErrUnavailable] while the gateway may have missed changes of the store. Its records
// must not be served then.
func (s *Service) Serving() error { return s.store.Serving() }

// Endpoint returns the public addresses of the gateway.
func (s *Service) Endpoint() Endpoint { return s.endpoint() }

// Build returns the versions of the gateway.
func (s *Service) Build() Build { return s.build }

// Downloads returns the folder of connectors that the gateway hands out, and the site that
// it hands them out at.
func (s *Service) Downloads() (*downloads.Folder, downloads.Site) {
	e := s.endpoint()
	return s.folder, downloads.Site{
		URL: e.URL, Console: strings.TrimSuffix(e.Console, "/"), Pin: e.Pin,
		Verified: e.Verified, Root: e.Root,
	}
}

// write describes a write for the log and the audit log.
type write struct {
	operation, id, name string
	more                []any
}

// change performs a write in the caller's account, and adds it to the audit log. A write that edges have not
// confirmed is made: it returns an answer and an error.
func change[T any](ctx context.Context, s *Service, do func(account string) (T, write, error)) (T, error) {
	var none T
	account, err := s.account(ctx)
	if err != nil {
		return none, err
	}
	answer, w, err := do(account)
	if !store.Committed(err) {
		return none, err
	}
	s.audit(ctx, w.operation, account, w.id, w.name, w.more...)
	return answer, err
}

// sessions returns the live tunnels by connector id.
func (s *Service) sessions() map[string]tunnel.Info {
	infos := s.tunnels.Sessions()
	byID := make(map[string]tunnel.Info, len(infos))
	for _, info := range infos {
		byID[info.Connector] = info
	}
	return byID
}

// list returns the records of the caller's account, converted by view. It is never
// nil: an empty JSON list is [].
func list[R, V any](ctx context.Context, s *Service, records func(account string) []R, view func(R) V) ([]V, error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	views := []V{}
	for _, r := range records(account) {
		views = append(views, view(r))
	}
	return views, nil
}

// find returns the first record that matches.
func find[T any](records []T, match func(T) bool) (T, bool) {
	if i := slices.IndexFunc(records, match); i >= 0 {
		return records[i], true
	}
	var none T
	return none, false
}
