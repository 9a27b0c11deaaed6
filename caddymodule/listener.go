package caddymodule

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/events"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/version"
)

// tunnelHandle is a tunnel listener that lives as long as any configuration
// wants its address. What of it depends on a configuration comes from the
// newest one that is started; if that one fails or stops, from the one before.
type tunnelHandle struct {
	hub atomic.Pointer[tunnel.Hub]

	mu      sync.Mutex
	owners  []owner           // started configurations, the newest last
	secrets tunnel.Secrets    // of the store that the hub was opened with
	events  []*events.Gateway // that tell of the hub
}

// owner is a started configuration and what the hub takes from it.
type owner struct {
	app     *App
	options tunnel.Options
}

// errOtherStorage refuses a configuration whose store has another identity than
// the one that the listener has shown since it was opened: every token made
// from then on would hold a pin that is wrong after the next restart.
var errOtherStorage = errors.New("a reload cannot change the storage of a tunnel listener that stays: " +
	"restart Caddy, or let `model_gateway { listen … }` name another port, too")

// errNotListening is what a request meets that comes before the app's Start.
var errNotListening = errors.New("the tunnel listener is not started yet")

// closeGrace is how long requests that still run may take when the last
// configuration is gone: Caddy has ended its own grace period by then.
const closeGrace = time.Second

func newTunnelHandle() *tunnelHandle { return new(tunnelHandle) }

// get returns the hub, once a configuration has started it.
func (t *tunnelHandle) get() (*tunnel.Hub, error) {
	if hub := t.hub.Load(); hub != nil {
		return hub, nil
	}
	return nil, errNotListening
}

// start makes app's configuration the one in force, and listens if nothing
// does so yet.
func (t *tunnelHandle) start(app *App, open *services) error {
	options := tunnel.Options{
		Authenticate: authenticateWith(open.store), Known: knownTo(open.store), Preauthenticate: open.store.MatchConnector,
		Pairing: open.desk, Rotation: open.rotation,
		Logger: app.logger, Version: version.Number(),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	secrets, err := tunnelSecrets(app.ctx, open.store)
	if err != nil {
		return err
	}
	switch hub := t.hub.Load(); {
	case hub == nil:
		err = t.open(app, open, secrets, options)
	case !bytes.Equal(secrets.Identity, t.secrets.Identity):
		err = errOtherStorage
	default:
		hub.SetOptions(options)
		t.tellOf(hub, open.events)
	}
	if err != nil {
		return err
	}
	t.owners = append(t.owners, owner{app, options})
	return nil
}

// tellOf has events tell of the hub's connectors.
func (t *tunnelHandle) tellOf(hub *tunnel.Hub, g *events.Gateway) {
	if !slices.Contains(t.events, g) {
		t.events = append(t.events, g)
		g.Follow(hub)
	}
}

// tellNoMore ends that.
func (t *tunnelHandle) tellNoMore(hub *tunnel.Hub) {
	for _, g := range t.events {
		g.Unfollow(hub)
	}
	t.events = nil
}

// open binds the socket and starts the hub on it.
func (t *tunnelHandle) open(app *App, open *services, secrets tunnel.Secrets, options tunnel.Options) error {
	conn, err := listenUDP(app.listen)
	if err != nil {
		return err
	}
	hub := tunnel.NewHub(options)
	// Known before it listens: devices that wait to be paired come back at
	// once, and what they are told holds its pin.
	t.hub.Store(hub)
	t.tellOf(hub, open.events)
	if err := hub.Listen(conn, secrets); err != nil {
		t.tellNoMore(hub)
		t.hub.Store(nil)
		_ = conn.Close()
		return fmt.Errorf("starting the tunnel listener: %w", err)
	}
	t.secrets = secrets
	return nil
}

// stop ends app's say. Without any configuration left the hub stays, for the
// requests that still run, but takes no connector.
func (t *tunnelHandle) stop(app *App) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owners = slices.DeleteFunc(t.owners, func(o owner) bool { return o.app == app })
	hub := t.hub.Load()
	if hub == nil {
		return
	}
	options := tunnel.Options{Pairing: notNow{}, Logger: app.logger}
	if n := len(t.owners); n > 0 {
		options = t.owners[n-1].options
	}
	hub.SetOptions(options)
}

// notNow is the desk of a listener without a configuration: without one,
// devices would be told for good that this gateway does not pair.
type notNow struct{}

// Claim implements tunnel.Pairing.
func (notNow) Claim(context.Context, tunnel.Device) (tunnel.Ticket, *link.Deny) {
	return tunnel.Ticket{}, &link.Deny{Code: link.DenyUnavailable, Message: "the gateway is about to stop", Retry: true}
}

// Destruct closes all tunnels and the socket; the pool calls it when no
// configuration is left.
func (t *tunnelHandle) Destruct() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	hub := t.hub.Swap(nil)
	if hub == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	err := hub.Close(ctx)
	t.tellNoMore(hub)
	return err
}

// authenticateWith checks connectors against a store.
func authenticateWith(st *store.Store) tunnel.Authenticate {
	return func(_ context.Context, id, secret string) (tunnel.Connector, error) {
		c, err := st.AuthenticateConnector(id, secret)
		switch {
		case errors.Is(err, store.ErrUnauthenticated):
			return tunnel.Connector{}, err
		case err != nil:
			return tunnel.Connector{}, fmt.Errorf("%w: %w", tunnel.ErrUnavailable, err)
		}
		return tunnelConnector(c), nil
	}
}

// knownTo tells whether a connector is still there, and its place not given away.
func knownTo(st *store.Store) func(tunnel.Connector) bool {
	return func(c tunnel.Connector) bool {
		now, ok := st.Connector(c.ID)
		return ok && now.Pairing == c.Pairing
	}
}

// tunnelConnector is a connector as the hub knows it.
func tunnelConnector(c store.Connector) tunnel.Connector {
	return tunnel.Connector{ID: c.ID, Name: c.Name, Account: c.Account, Pairing: c.Pairing, Rotating: c.Rotation != nil}
}

// tunnelSecrets fetches the gateway's tunnel identity and keys, making them at
// the first start. Connectors pin the identity: it must never change.
func tunnelSecrets(ctx context.Context, st *store.Store) (s tunnel.Secrets, err error) {
	for _, secret := range []struct {
		name     string
		to       *[]byte
		generate func() ([]byte, error)
	}{
		{"tunnel_identity", &s.Identity, link.NewIdentity},
		{"quic_reset", &s.Reset, randomKey},
		{"quic_token", &s.Token, randomKey},
	} {
		if *secret.to, err = st.Secret(ctx, secret.name, secret.generate); err != nil {
			return s, fmt.Errorf("fetching the secret %s: %w", secret.name, err)
		}
	}
	return s, nil
}

// randomKey makes a 32-byte key.
func randomKey() ([]byte, error) {
	key := make([]byte, 32)
	_, err := rand.Read(key)
	return key, err
}

// listenUDP binds the tunnel's own UDP port. It is not shared through Caddy's
// listener pool: that sets SO_REUSEPORT, with which a second process would
// silently take half of the packets instead of being told that the port is in
// use.
func listenUDP(na caddy.NetworkAddress) (*net.UDPConn, error) {
	address := na.JoinHostPort(0)
	addr, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, fmt.Errorf("resolving the tunnel's listen address %s: %w", address, err)
	}
	conn, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening for connectors on UDP %s: %w (is another gateway running? choose another port with `model_gateway { listen … }` in the global options)", address, err)
	}
	return conn, nil
}
