// Package asktest has the request path of a gateway whose tunnels are fakes, for tests of the console's requests.
package asktest

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/caddymodule/turns"
	"github.com/postern-dev/postern/connector/memory"
)

// Gateway is a request path.
type Gateway struct {
	*serve.Server
	*serve.Backend
}

// Tunnel is a fake tunnel.
type Tunnel interface {
	http.RoundTripper
	Resolve(public, upstream, model string) (string, string, error)
}

// New returns a gateway, which is closed when the test ends. route is that of serve.Server.
func New(t testing.TB, st *store.Store, log *activity.Log,
	route func(connector string, to tunnel.Target) (tunnel.DeploymentRoute, bool),
) Gateway {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	b, err := serve.NewBackend(st, memory.NewBudget(64<<20), log, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	b.Observed.Route = route
	return Gateway{&serve.Server{
		Open:  func() (*serve.Backend, error) { return b, nil },
		Route: route, Recheck: func(string, tunnel.Target) {}, StatusOf: func(error) int { return 0 },
		Observer: Silent{}, Logger: quiet,
	}, b}
}

// Connect brings a connector online. one: its upstreams load one model at a time.
func (g Gateway) Connect(account, connector string, to Tunnel, one bool, upstreams ...string) {
	c := turns.Connector{ID: connector, Account: account, Tunnel: sender{to}, Resolve: to.Resolve}
	for _, name := range upstreams {
		c.Servers = append(c.Servers, turns.Server{Name: name, OneModel: one})
	}
	g.Turns.SetConnector(c)
}

// Disconnect takes a connector offline.
func (g Gateway) Disconnect(account, connector string) {
	g.Turns.RemoveConnector(account, connector)
}

// sender implements serve.Tunnel.
type sender struct{ Tunnel }

// Send implements serve.Tunnel.
func (s sender) Send(r *http.Request, _ string) (*http.Response, error) { return s.RoundTrip(r) }

// Silent is a serve.Observer without counters.
type Silent struct{}

func (Silent) Refused(string)                         {}
func (Silent) Running(*serve.Exchange, float64)       {}
func (Silent) FirstByte(*serve.Exchange)              {}
func (Silent) Rejected(*serve.Exchange, string)       {}
func (Silent) Limited(limits.State)                   {}
func (Silent) Queued(*serve.Exchange, time.Duration)  {}
func (Silent) Ended(*serve.Exchange, serve.Ending)    {}
func (Silent) Counted(*serve.Exchange, dialect.Usage) {}
