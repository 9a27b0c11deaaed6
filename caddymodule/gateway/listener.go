package gateway

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/newest"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/version"
)

// Listener is a tunnel listener that exists while any configuration uses its
// address. Its options are those of the current configuration.
type Listener struct {
	hub atomic.Pointer[tunnel.Hub]

	mu             sync.Mutex
	configurations newest.Stack[*Gateway]
	secrets        tunnel.Secrets // in the store that the hub was started with
	followers      []*Services    // subscribed to the hub

	identity sync.Mutex // held while the hub gets the identity
}

// errOtherStorage rejects a configuration whose store is not that of the running listener. It has another
// identity, so the pin in every new token would be wrong after the next restart.
var errOtherStorage = errors.New("a reload cannot change the storage of a running tunnel listener: " +
	"restart Caddy, or also change the port in `model_gateway { listen … }`")

// ErrNotListening is returned before Start.
var ErrNotListening = errors.New("the tunnel listener has not started yet")

// closeGrace is the time for running requests after the last configuration has ended. Caddy's own grace
// period is over by then, or no client's request runs.
const closeGrace = time.Second

// Hub returns the hub, once a configuration has started it.
func (l *Listener) Hub() (*tunnel.Hub, error) {
	if hub := l.hub.Load(); hub != nil {
		return hub, nil
	}
	return nil, ErrNotListening
}

// start activates g's configuration, and starts the hub if it is not running.
func (l *Listener) start(ctx context.Context, g *Gateway, s *Services) error {
	options := tunnel.Options{
		Authenticate: authenticateWith(s.Store), Valid: validIn(s.Store), Preauthenticate: s.Store.MatchConnector,
		Pairing: s.Pairing, Bodies: s.Bodies, Logger: g.Logger, Version: version.Number(),
	}
	if s.Cluster != nil {
		options.Members = s.Cluster.Members
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	secrets, err := tunnelSecrets(ctx, s.Store)
	if err != nil {
		return err
	}
	switch hub := l.hub.Load(); {
	case hub == nil:
		err = l.listen(g.Listen, s, secrets, options)
	case !bytes.Equal(secrets.Reset, l.secrets.Reset): // unlike the identity, it never changes
		err = errOtherStorage
	default:
		hub.SetOptions(options)
		l.follow(hub, s)
	}
	if err == nil {
		err = l.applyIdentity(s.Store) // it may have changed since it was read
	}
	if err != nil {
		return err
	}
	g.tunnelOptions = options
	l.configurations.Push(g)
	return nil
}

// applyIdentity passes the identity in the store to the hub. It is called after the identity changes.
func (l *Listener) applyIdentity(st *store.Store) error {
	l.identity.Lock()
	defer l.identity.Unlock()
	hub := l.hub.Load()
	if hub == nil {
		return nil // start reads it
	}
	return hub.SetIdentity(st.Identity())
}

// follow subscribes s to the hub's connectors.
func (l *Listener) follow(hub *tunnel.Hub, s *Services) {
	if !slices.Contains(l.followers, s) {
		l.followers = append(l.followers, s)
		s.Follow(hub)
		s.Events.Follow(hub)
	}
}

// unfollow ends all subscriptions to the hub.
func (l *Listener) unfollow(hub *tunnel.Hub) {
	for _, s := range l.followers {
		s.Unfollow(hub)
		s.Events.Unfollow(hub)
	}
	l.followers = nil
}

// listen binds the socket and starts the hub on it.
func (l *Listener) listen(address string, s *Services, secrets tunnel.Secrets, options tunnel.Options) error {
	conn, err := listenUDP(address)
	if err != nil {
		return err
	}
	hub := tunnel.NewHub(options)
	// Set before Listen: devices that are being paired reconnect at once, and
	// their answer contains the hub's pin.
	l.hub.Store(hub)
	l.follow(hub, s)
	if err := hub.Listen(conn, secrets); err != nil {
		l.unfollow(hub)
		l.hub.Store(nil)
		_ = conn.Close()
		return fmt.Errorf("starting the tunnel listener: %w", err)
	}
	l.secrets = secrets
	if s.Cluster != nil {
		s.Cluster.Listening(hub)
	}
	return nil
}

// stop removes g's configuration. After the last one, the hub continues for running
// requests, but does not accept connectors.
func (l *Listener) stop(g *Gateway) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.configurations.Remove(g)
	hub := l.hub.Load()
	if hub == nil {
		return
	}
	options := tunnel.Options{Pairing: shuttingDown{}, Logger: g.Logger}
	if current, ok := l.configurations.Newest(); ok {
		options = current.tunnelOptions
	}
	hub.SetOptions(options)
}

// shuttingDown temporarily denies devices while the listener has no configuration.
// Without it they would be denied permanently.
type shuttingDown struct{}

// Claim implements tunnel.Pairing.
func (shuttingDown) Claim(context.Context, tunnel.Device) (tunnel.Ticket, *link.Deny) {
	return tunnel.Ticket{}, &link.Deny{Code: link.DenyUnavailable, Message: "the gateway is shutting down", Retry: true}
}

// Expects implements tunnel.Pairing.
func (shuttingDown) Expects(string, func([]byte) bool) (string, bool) { return "", false }

// Destruct closes all tunnels and the socket. Caddy calls it when no configuration
// uses the listener.
func (l *Listener) Destruct() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	hub := l.hub.Swap(nil)
	if hub == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	err := hub.Close(ctx)
	l.unfollow(hub)
	return err
}

// authenticateWith returns a function that authenticates connectors with a store.
func authenticateWith(st *store.Store) tunnel.Authenticate {
	return func(ctx context.Context, id, secret string) (tunnel.Connector, error) {
		if err := st.Serving(); err != nil {
			return tunnel.Connector{}, fmt.Errorf("%w: %w", tunnel.ErrUnavailable, err)
		}
		c, err := st.AuthenticateConnector(id, secret)
		if err != nil {
			// Another gateway may have just created it, and a refusal is final.
			if err = st.Refresh(ctx); err == nil {
				c, err = st.AuthenticateConnector(id, secret)
			}
		}
		switch {
		case errors.Is(err, store.ErrUnauthenticated):
			return tunnel.Connector{}, err
		case errors.Is(err, store.ErrRotated):
			return tunnel.Connector{}, fmt.Errorf("%w: %w", tunnel.ErrRotated, err)
		case err != nil:
			return tunnel.Connector{}, fmt.Errorf("%w: %w", tunnel.ErrUnavailable, err)
		}
		return tunnel.Connector{
			ID: c.ID, Name: c.Name, Account: c.Account, Pairing: c.Pairing, Secret: store.SecretHash(secret),
		}, nil
	}
}

// validIn returns a function that reports until when a connector may have its tunnel.
func validIn(st *store.Store) func(tunnel.Connector) (until time.Time, err error) {
	return func(c tunnel.Connector) (until time.Time, err error) {
		now, ok := st.Connector(c.ID)
		if !ok || now.Pairing != c.Pairing {
			return until, store.ErrUnauthenticated
		}
		if c.Secret != [sha256.Size]byte{} {
			_, until, err = st.CheckConnector(c.ID, c.Secret)
		}
		if err != nil { // it was valid; after two rotations the store does not know it
			err = tunnel.ErrRotated
		}
		return until, err
	}
}

// tunnelSecrets returns the gateway's tunnel identity and keys, creating them at the
// first start.
func tunnelSecrets(ctx context.Context, st *store.Store) (s tunnel.Secrets, err error) {
	for name, secret := range map[string]*[]byte{"quic_reset": &s.Reset, "quic_token": &s.Token} {
		if *secret, err = st.Secret(ctx, name, store.RandomKey); err != nil {
			return s, fmt.Errorf("loading the secret %s: %w", name, err)
		}
	}
	if s.Identity, err = st.Secret(ctx, store.SecretIdentity, link.NewIdentity); err != nil {
		return s, fmt.Errorf("loading the tunnel identity: %w", err)
	}
	s.Reset, err = resetKey(s.Reset, st.Edge())
	return s, err
}

// resetKey derives the key of a gateway's stateless resets from the secret that all
// gateways of a store share. With one key for all, a stray packet at another gateway would
// be answered with a valid reset of a tunnel that is alive: RFC 9000, section 21.11.
func resetKey(shared []byte, edge string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, shared, nil, "postern stateless reset: "+edge, 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of stateless resets: %w", err)
	}
	return key, nil
}

// listenUDP binds the tunnel's UDP port. It does not use Caddy's listener pool,
// which sets SO_REUSEPORT: a second process would then silently take half of the
// packets instead of failing.
func listenUDP(address string) (*net.UDPConn, error) {
	addr, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, fmt.Errorf("resolving the tunnel's listen address %s: %w", address, err)
	}
	conn, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening for connectors on UDP %s: %w (is another gateway running? choose another port "+
			"with `model_gateway { listen … }` in the global options)", address, err)
	}
	return conn, nil
}
