// Package peer connects a gateway to the others of its cluster, over the protocol of tunnels:
// to its peers a gateway is a client that proves that it has the cluster's key.
package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
)

// dialTime bounds an attempt to connect to a peer.
const dialTime = 10 * time.Second

// Options are the parameters of New.
type Options struct {
	Name string        // of this gateway
	Key  []byte        // of the cluster
	Pin  func() string // of the identity that all its gateways have; "": not known yet
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
	address string
	asking  sync.Mutex // held for a question and its answer
	dialing bool       // guarded by Links.mu
	open    *opened    // guarded by Links.mu; nil: none
}

// opened is an open connection.
type opened struct {
	conn    *dial.Conn
	stream  interface{ SetDeadline(time.Time) error }
	control *link.Control
}

var (
	errNoAddress = errors.New("the peer has no address: set `edge { peer … }` there")
	errAsking    = errors.New("the peer has not answered the question before")
	errNoLink    = errors.New("there is no connection to the peer yet")
)

// New returns links that connect when they are used.
func New(o Options) *Links {
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

// Ask asks a peer whether it has contact to the store. Without a connection it begins to dial,
// and fails at once.
func (l *Links) Ask(ctx context.Context, edge store.Edge) (pong link.Pong, err error) {
	if edge.Peer == "" {
		return pong, errNoAddress
	}
	c, open := l.to(edge)
	if open == nil {
		return pong, errNoLink
	}
	if !c.asking.TryLock() {
		return pong, errAsking
	}
	defer c.asking.Unlock()
	if pong, err = open.ask(ctx); err != nil {
		// An answer that is still to come must not be taken for that to the next question.
		l.drop(c, open)
		return pong, fmt.Errorf("asking the gateway %s: %w", edge.Name, err)
	}
	return pong, nil
}

// to returns the connection to a peer, and begins to dial if there is none.
func (l *Links) to(edge store.Edge) (*connection, *opened) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.links[edge.Name]
	if c == nil || c.address != edge.Peer {
		c = &connection{address: edge.Peer}
		l.links[edge.Name] = c
	}
	if c.open != nil && c.open.conn.Context().Err() != nil {
		c.open = nil
	}
	if c.open == nil && !c.dialing && l.ctx.Err() == nil {
		c.dialing = true
		go l.connect(c)
	}
	return c, c.open
}

func (l *Links) drop(c *connection, open *opened) {
	_ = open.conn.Close(link.CloseNone, "")
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.open == open {
		c.open = nil
	}
}

func (l *Links) connect(c *connection) {
	open, err := l.dial(c.address)
	l.mu.Lock()
	defer l.mu.Unlock()
	c.dialing = false
	if err == nil {
		c.open = open
	}
}

// dial connects to a peer and says hello.
func (l *Links) dial(address string) (*opened, error) {
	ctx, cancel := context.WithTimeout(l.ctx, dialTime)
	defer cancel()
	token := func() link.Token { return link.Token{Server: address, Pin: l.Pin()} }
	conn, err := dial.NewQUIC(dial.Target{Server: address, Token: token}).Dial(ctx, nil)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(l.ctx, func() { _ = conn.Close(link.CloseNone, "") })
	context.AfterFunc(conn.Context(), func() { stop() })
	open, err := l.hello(ctx, conn)
	if err != nil {
		_ = conn.Close(link.CloseNone, "")
	}
	return open, err
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
	answer, err := open.exchange(ctx, link.Hello{Peer: l.Name, Secret: proof})
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

func (o *opened) ask(ctx context.Context) (link.Pong, error) {
	answer, err := o.exchange(ctx, link.Ping{})
	if err != nil {
		return link.Pong{}, err
	}
	pong, ok := answer.(link.Pong)
	if !ok {
		return link.Pong{}, errors.New("the peer does not answer the ping")
	}
	return pong, nil
}

// exchange sends a message and receives the next one.
func (o *opened) exchange(ctx context.Context, m link.Message) (link.Message, error) {
	deadline, _ := ctx.Deadline()
	if err := o.stream.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if err := o.control.Send(m); err != nil {
		return nil, err
	}
	return o.control.Receive()
}
