// Package peer connects a gateway to the others of its cluster, over the protocol of tunnels:
// to its peers a gateway is a client that proves that it has the cluster's key.
package peer

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

// dialTime bounds an attempt to connect to a peer.
const dialTime = 10 * time.Second

// goneTime is after what time without a question a peer has left the cluster.
const goneTime = time.Minute

// maxRequests bounds the requests of a peer that run at a time.
const maxRequests = 16384

// idPrefix begins the id with which a gateway preauthenticates. Those of connectors have no dot.
const idPrefix = "peer."

// Options are the parameters of New.
type Options struct {
	Name, Region string        // of this gateway
	Key          []byte        // of the cluster
	Pin          func() string // of the identity that all its gateways have; "": not known yet
	Hub          func() Hub    // has the tunnels of this gateway; nil: there is none yet
	Logger       *slog.Logger  // nil discards
}

// Hub is implemented by [tunnel.Hub].
type Hub interface {
	// Announce sends a peer the tunnels and pairings until the hub is closed and has none.
	Announce(ctx context.Context, send func(link.Message) error) error
	// Relay serves a request of a peer.
	Relay(stream *quic.Stream)
}

// Links are the connections to the peers. Its methods are safe for concurrent use.
type Links struct {
	Options
	ctx   context.Context
	close context.CancelFunc

	mu    sync.Mutex
	links map[string]*connection // by the names of the peers
}

// connection is the connection to one peer.
type connection struct {
	name, address string
	asked         time.Time // guarded by Links.mu
	dialing       bool      // guarded by Links.mu
	failing       bool      // the last attempt has failed; guarded by Links.mu
	open          *opened   // guarded by Links.mu; nil: none
}

var (
	errNoAddress = errors.New("the peer has no address: set `edge { peer … }` there")
	errNoLink    = errors.New("there is no connection to the peer yet")
)

// New returns links that connect when they are used.
func New(o Options) *Links {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Links{Options: o, links: map[string]*connection{}}
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

// Ask asks a peer whether it has contact to the store. Without a connection it begins to dial,
// and fails at once. Connections are kept by asking twice a second.
func (l *Links) Ask(ctx context.Context, edge store.Edge) (link.Pong, error) {
	if edge.Peer == "" {
		return link.Pong{}, errNoAddress
	}
	open := l.to(edge)
	if open == nil {
		return link.Pong{}, errNoLink
	}
	return open.ask(ctx)
}

// to returns the connection to a peer, and begins to dial if there is none.
func (l *Links) to(edge store.Edge) *opened {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.links[edge.Name]
	if c == nil || c.address != edge.Peer {
		for _, other := range l.links {
			if other == c || time.Since(other.asked) > goneTime {
				l.drop(other)
			}
		}
		c = &connection{name: edge.Name, address: edge.Peer}
		l.links[edge.Name] = c
	}
	c.asked = time.Now()
	if c.open != nil && c.open.conn.Context().Err() != nil {
		l.Logger.Warn("lost the connection to a peer; dialing again", "peer", c.name, "error", context.Cause(c.open.conn.Context()))
		c.open = nil
	}
	if c.open == nil && !c.dialing && l.ctx.Err() == nil {
		c.dialing = true
		go l.connect(c)
	}
	return c.open
}

// drop ends the connection to a peer. The caller holds the lock.
func (l *Links) drop(c *connection) {
	delete(l.links, c.name)
	if c.open != nil {
		_ = c.open.conn.Close(link.CloseNone, "")
	}
}

func (l *Links) connect(c *connection) {
	var open *opened
	err := panics.Do(l.Logger, "connecting to a peer", func() (err error) {
		open, err = l.dial(c.address)
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	c.dialing = false
	if err == nil && l.links[c.name] != c { // dropped meanwhile
		_ = open.conn.Close(link.CloseNone, "")
		return
	}
	if err == nil {
		l.Logger.Info("connected to a peer", "peer", c.name)
		c.open, c.failing = open, false
		return
	}
	if !c.failing && l.ctx.Err() == nil {
		l.Logger.Warn("failed to connect to a peer; trying again", "peer", c.name, "address", c.address, "error", err)
	}
	c.failing = true
}

// dial connects to a peer. The first connection from an address only makes that known there.
func (l *Links) dial(address string) (*opened, error) {
	ctx, cancel := context.WithTimeout(l.ctx, dialTime)
	defer cancel()
	open, err := l.dialOnce(ctx, address)
	if deny := (link.Deny{}); errors.As(err, &deny) && deny.Code == link.DenyAgain {
		open, err = l.dialOnce(ctx, address)
	}
	return open, err
}

// dialOnce opens a connection and says hello.
func (l *Links) dialOnce(ctx context.Context, address string) (*opened, error) {
	token := func() link.Token {
		return link.Token{Server: address, Pin: l.Pin(), Connector: idPrefix + l.Name, Secret: string(l.Key)}
	}
	conn, err := dial.NewQUIC(dial.Target{Server: address, Token: token, MaxRequests: maxRequests, Peer: true}).Dial(ctx, nil)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(l.ctx, func() { _ = conn.Close(link.CloseNone, "") })
	context.AfterFunc(conn.Context(), func() { stop() })
	open, err := l.hello(ctx, conn)
	if err != nil {
		_ = conn.Close(link.CloseNone, "")
		return nil, err
	}
	go open.work(l.Logger, "reading from a peer", open.receive)
	go open.work(l.Logger, "accepting requests of a peer", func() { open.serve(l.Hub) })
	go open.work(l.Logger, "sending a peer the tunnels", func() { open.announce(l.Hub) })
	return open, nil
}

func (l *Links) hello(ctx context.Context, conn *dial.Conn) (*opened, error) {
	proof, err := link.PeerProof(l.Key, conn.ConnectionState().TLS, l.Name)
	if err != nil {
		return nil, err
	}
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	open := &opened{conn: conn, stream: stream, control: link.NewControl(stream)}
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
