// Package peer connects a gateway to the other gateways of its cluster, its peers, with the protocol
// of tunnels. Each gateway dials each peer, proves that it has the cluster's key, and announces its tunnels.
// The peer then sends requests for these tunnels over the connection.
package peer

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

// dialTimeout bounds an attempt to connect to a peer.
const dialTimeout = 10 * time.Second

// dialPause is the time between the end of a connection, or of an attempt, and the next attempt.
const dialPause = 500 * time.Millisecond

// maxRequests bounds the running requests of a peer.
const maxRequests = 16384

// idPrefix begins the id with which a gateway preauthenticates. Ids of connectors contain no dot.
const idPrefix = "peer."

// Options are the parameters of New.
type Options struct {
	Name, Region string        // of this gateway
	Key          []byte        // of the cluster
	Pin          func() string // of the identity that all its gateways share; "": not known yet
	// Peers returns the addresses of the peers by their names. [Links.Follow] applies changes.
	Peers   func() map[string]string
	Gateway Gateway
	Logger  *slog.Logger // nil discards
}

// Gateway is this gateway, as its peers see it. Package cluster/edge implements it.
type Gateway interface {
	// Serving fails while this gateway may have missed changes.
	Serving() error
	// Pairings returns messages for new peers about the pairings of this gateway. It must not call
	// the links.
	Pairings() []link.Pairing
	// OnPairing returns the handler for messages of one peer about its pairings. The pairings end
	// with ctx.
	OnPairing(ctx context.Context) func(link.Pairing)
	// OnSignIn applies a message of a peer about an attempt to sign in there.
	OnSignIn(m link.SignIn)
}

// Links are the connections to the peers. Its methods are safe for concurrent use.
type Links struct {
	Options
	ctx   context.Context
	close context.CancelFunc
	hub   atomic.Pointer[tunnel.Hub] // of this gateway; nil: there is none yet

	presence presence

	mu    sync.Mutex
	links map[string]following // by the names of the peers
}

// following is a goroutine that keeps the connection to a peer.
type following struct {
	address string
	end     context.CancelFunc
}

// New returns links that connect at the first call of Follow.
func New(o Options) *Links {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Links{Options: o, links: map[string]following{}}
	l.presence.published = map[*tunnel.Session]tunnel.Published{}
	l.presence.subscribers = map[*subscriber]struct{}{}
	l.ctx, l.close = context.WithCancel(context.Background())
	return l
}

// Close ends all connections.
func (l *Links) Close() { l.close() }

// Check implements tunnel.Peers: the hello of a peer has the proof for its connection.
func (l *Links) Check(hello link.Hello, connection tls.ConnectionState) bool {
	return link.CheckPeerProof(l.Key, connection, hello)
}

// Match reports whether match accepts the hash of the secret with which gateways of this cluster
// preauthenticate.
func (l *Links) Match(id string, match func(secretHash []byte) bool) bool {
	hash := sha256.Sum256(l.Key)
	return strings.HasPrefix(id, idPrefix) && match(hash[:])
}

// Use announces the tunnels of hub to the peers, instead of those of an earlier hub, and calls Follow.
func (l *Links) Use(hub *tunnel.Hub) {
	l.hub.Store(hub)
	l.Follow()
}

// Hub returns the hub in use; nil: there is none yet.
func (l *Links) Hub() *tunnel.Hub { return l.hub.Load() }

// Follow applies changes of the peers: it connects to new peers and to changed addresses, and closes the
// connections to removed peers and to former addresses.
func (l *Links) Follow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	peers := l.Peers()
	for name, f := range l.links {
		if peers[name] != f.address {
			f.end()
			delete(l.links, name)
		}
	}
	for name, address := range peers {
		if _, ok := l.links[name]; ok {
			continue
		}
		ctx, end := context.WithCancel(l.ctx)
		l.links[name] = following{address, end}
		go l.keep(ctx, name, address)
	}
}

// keep keeps a connection to a peer until ctx ends.
func (l *Links) keep(ctx context.Context, name, address string) {
	log, failing := l.Logger.With("peer", name), false
	for ; ctx.Err() == nil; _ = wait.For(ctx, dialPause) {
		var open *outgoing
		err := panics.Do(log, "connecting to a peer", func() (err error) {
			open, err = l.dial(ctx, address)
			return err
		})
		if err == nil {
			log.Info("connected to a peer")
			err := open.run(ctx, log, l)
			if ctx.Err() == nil {
				log.Warn("lost the connection to a peer; dialing again", "error", err)
			}
		} else if !failing && ctx.Err() == nil {
			log.Warn("failed to connect to a peer; trying again", "address", address, "error", err)
		}
		failing = err != nil
	}
}

// dial connects to a peer. If the peer does not know the address of this gateway, it denies the first
// connection with DenyAgain, and gives the next one the windows of a peer.
func (l *Links) dial(ctx context.Context, address string) (*outgoing, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	open, err := l.dialOnce(ctx, address)
	if deny := (link.Deny{}); errors.As(err, &deny) && deny.Code == link.DenyAgain {
		open, err = l.dialOnce(ctx, address)
	}
	return open, err
}

// dialOnce opens a connection and completes the exchange of hello and welcome.
func (l *Links) dialOnce(ctx context.Context, address string) (*outgoing, error) {
	token := func() link.Token {
		return link.Token{Server: address, Pin: l.Pin(), Connector: idPrefix + l.Name, Secret: string(l.Key)}
	}
	target := dial.Target{Server: address, Token: token, MaxRequests: maxRequests, Peer: true}
	conn, err := dial.NewQUIC(target).Dial(ctx)
	if err != nil {
		return nil, err
	}
	open, err := l.hello(ctx, conn)
	if err != nil {
		_ = conn.Close(link.CloseNone, "")
		return nil, err
	}
	return open, nil
}

func (l *Links) hello(ctx context.Context, conn *link.Conn) (*outgoing, error) {
	proof, err := link.PeerProof(l.Key, conn.ConnectionState().TLS, l.Name)
	if err != nil {
		return nil, err
	}
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	open := &outgoing{conn: conn, stream: stream, control: link.NewControl(stream)}
	deadline, _ := ctx.Deadline()
	_ = stream.SetReadDeadline(deadline)
	if err := open.send(link.Hello{Peer: l.Name, Region: l.Region, Secret: proof}); err != nil {
		return nil, err
	}
	answer, err := open.control.Receive()
	if err != nil {
		return nil, err
	}
	switch answer := answer.(type) {
	case link.Welcome:
		return open, nil
	case link.Deny:
		return nil, answer
	}
	return nil, errors.New("the peer does not answer the hello")
}
