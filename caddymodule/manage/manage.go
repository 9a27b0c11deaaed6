// Package manage is the management of a gateway: the operations on its keys,
// connectors and deployments, and the JSON API that offers them.
//
// It knows neither Caddy nor the command line. Caddy's admin endpoint serves
// [Service.Handler] under /model_gateway; the commands are clients of it:
//
//	GET    /status                          what the gateway is and does now
//	GET    /keys                            list
//	POST   /keys                            {name, scope?} -> the key, once
//	DELETE /keys/{id}                       revoke
//	GET    /connectors                      list, with their live state
//	POST   /connectors                      {name} -> the tunnel token, once
//	DELETE /connectors/{id or name}         remove and disconnect
//	GET    /deployments                     list, with their live state
//	PUT    /deployments/{name}              {connector, upstream?, model?}
//	DELETE /deployments/{name}              remove
//
// Every operation works inside one account: the field "account" of a body, or
// the query parameter of the same name; "default" if it is not given. Names in
// paths are percent-encoded, so that "org/model:7b" is one segment.
//
// Errors are {"error": "text"}, as everywhere on Caddy's admin endpoint, and
// their text says what to do. Every write leaves one log line that names the
// operation and the record; secrets appear in the answer that creates them
// and nowhere else.
package manage

import (
	"log/slog"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// Tunnels is what the operations need of the tunnel hub.
type Tunnels interface {
	// Sessions lists the live tunnels, one at most per connector.
	Sessions() []tunnel.Info
	// Counters are the totals since the process started.
	Counters() tunnel.Counters
	// Disconnect closes the tunnel of a connector, if there is one.
	Disconnect(connectorID string, code link.CloseCode)
}

// Endpoint is how the gateway is reached from outside.
type Endpoint struct {
	// URL is the base of the HTTP API without /v1, for example
	// "https://gw.example.com"; empty if it is not known.
	URL string
	// Listen is the UDP address of the tunnel listener.
	Listen string
	// Public is the host:port that connectors dial; empty if it is not known.
	Public string
	// Pin is the hash of the gateway's tunnel identity that goes into tokens.
	Pin string
}

// Options configures a [Service]. Store, Tunnels and Endpoint are required.
type Options struct {
	Store   *store.Store
	Tunnels Tunnels
	// Endpoint is asked at every use: it follows configuration reloads.
	Endpoint func() Endpoint
	// Version of the gateway, for status; empty is allowed.
	Version string
	// Logger takes the audit lines; nil discards them.
	Logger *slog.Logger
}

// Service performs the management operations. Its methods are safe for
// concurrent use. Errors wrap the sentinels of package store, or
// [ErrNotReady].
type Service struct {
	store    *store.Store
	tunnels  Tunnels
	endpoint func() Endpoint
	version  string
	log      *slog.Logger
}

// New returns a service over o.Store and o.Tunnels; it owns neither.
func New(o Options) *Service {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Service{store: o.Store, tunnels: o.Tunnels, endpoint: o.Endpoint, version: o.Version, log: log}
}

// account resolves the account an operation works in; empty is the default.
func (s *Service) account(id string) (string, error) {
	if id == "" {
		return store.DefaultAccount, nil
	}
	if _, ok := s.store.Account(id); !ok {
		return "", faultf(store.ErrNotFound, "there is no account %q", id)
	}
	return id, nil
}

// audit writes the one line that every successful write leaves behind.
func (s *Service) audit(operation, account, id, name string, more ...any) {
	s.log.With("operation", operation, "account", account, "id", id, "name", name).Info("management operation", more...)
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

// list returns records, never nil: an empty JSON list is [].
func list[T any](records []T) []T {
	if records == nil {
		return []T{}
	}
	return records
}
