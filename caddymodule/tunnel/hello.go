package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/version"
)

const (
	helloTimeout = 5 * time.Second
	// helloMoment is how long a connection keeps its handshake permit after its
	// handshake. Most hellos arrive with the end of the handshake, but a connector
	// that dials in addition to a silent tunnel first waits for that tunnel.
	helloMoment = 250 * time.Millisecond
	// denyGrace is how long a denied connector has to read the reason, and to close. A
	// slower one gets the reason with the close.
	denyGrace = time.Second
	// sendTimeout bounds one control message to a connector that does not read.
	sendTimeout = 5 * time.Second
)

// connection is the other end of a connection: a connector, a device that is being paired, or
// another gateway.
type connection struct {
	hub     *Hub
	conn    *link.Conn
	place   *place // until the hello is accepted
	stream  *quic.Stream
	control *link.Control // over stream
}

// serve handles one connection: its hello, then the session or pairing.
func (h *Hub) serve(conn *link.Conn) {
	p := &connection{hub: h, conn: conn, place: placeOf(conn.Context())}
	var run func()
	err := h.contain("reading a hello", func() (err error) {
		run, err = p.handshake()
		return err
	})
	if err != nil {
		h.counters.rejected.Add(1)
		h.options.Load().Logger.Debug("rejecting a tunnel connection",
			"remote", conn.RemoteAddr().String(), "error", err)
		_ = conn.Close(link.CloseProtocol, "hello expected")
		return
	}
	if run != nil {
		h.work("serving a connection", run) // on a fresh stack: this one has grown
	}
}

// handshake reads a connection's hello and answers it. It returns the function that
// serves the connection from then on, nil if the connection was denied and closed.
func (p *connection) handshake() (run func(), err error) {
	ctx, cancel := context.WithTimeout(p.conn.Context(), helloTimeout)
	defer cancel()
	defer time.AfterFunc(helloMoment, p.place.release).Stop()
	if p.stream, err = p.conn.AcceptStream(ctx); err != nil {
		return nil, fmt.Errorf("waiting for the control stream: %w", err)
	}
	deadline, _ := ctx.Deadline()
	_ = p.stream.SetDeadline(deadline)
	p.control = link.NewControl(p.stream)
	m, err := p.control.ReceiveCounted(p.place.grow)
	if deny := denyFor(err); deny != nil {
		p.deny(slog.Bool("hello", false), *deny)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("waiting for the hello: %w", err)
	}
	hello, ok := m.(link.Hello)
	if !ok {
		return nil, errors.New("the first message is not a hello")
	}
	// Check first: it is cheap, and bounds the length of all fields.
	if err := hello.Check(); err != nil {
		p.deny(slog.Bool("hello", false), link.Deny{Code: link.DenyHello, Message: err.Error()})
		return nil, nil
	}
	if hello.Claim != "" {
		return p.handshakeDevice(ctx, hello), nil
	}
	if hello.Peer != "" {
		return p.handshakePeer(hello), nil
	}
	connector, deny := p.hub.check(ctx, hello)
	switch {
	case deny == nil && hello.DryRun:
		p.dryRun(connector, hello)
		return nil, nil
	case deny == nil:
		p.accepted()
		s := newSession(p, connector, hello)
		defer func() {
			if run == nil { // after a deny, or a panic
				p.hub.remove(s)
			}
		}()
		if deny = p.hub.start(s); deny != nil {
			break
		}
		// If the connector was removed since the check, there was no session to
		// close yet.
		if known := p.hub.options.Load().Known; known != nil && !known(connector) {
			s.close(link.CloseRemoved)
		}
		return s.run, nil
	}
	p.deny(loggedID(hello.Connector), *deny)
	return nil, nil
}

// accepted frees the place of a connection after a valid hello.
func (p *connection) accepted() {
	p.place.free()
	_ = p.stream.SetDeadline(time.Time{})
}

// send writes one control message and reports whether the peer reads. Otherwise it
// closes the connection, as the message may have been written in part.
func (p *connection) send(m link.Message) bool {
	_ = p.stream.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err := p.control.Send(m); err != nil {
		p.end(link.CloseLost)
		return false
	}
	return true
}

// end closes the connection.
func (p *connection) end(code link.CloseCode) { _ = p.conn.Close(code, code.String()) }

// wait gives the peer time to read the last message: a close would drop it.
func (p *connection) wait(grace time.Duration) {
	select {
	case <-p.conn.Context().Done():
	case <-time.After(grace):
	}
}

// dryRun answers a connector that checks its token, or asks for a newer version.
func (p *connection) dryRun(c Connector, hello link.Hello) {
	p.place.release()
	o := p.hub.options.Load()
	o.Logger.Info("connector checks its token", "connector_id", c.ID, "remote", p.conn.RemoteAddr().String())
	if p.send(link.Welcome{Version: o.Version, Offer: o.Offer(hello.OS)}) {
		p.wait(sendTimeout) // the connector closes the connection after reading it
	}
	_ = p.conn.Close(link.CloseNone, "")
}

var denyHeld = link.Deny{Code: link.DenyHeld, Message: "this edge has another tunnel of this connector already",
	Retry: true}

var denyShutdown = link.Deny{Code: link.DenyShutdown, Message: "the gateway is shutting down", Retry: true}

// denyFor maps an error of reading a hello to a deny, nil if the connection failed.
func denyFor(err error) *link.Deny {
	switch {
	case errors.Is(err, link.ErrOversized):
		return &link.Deny{Code: link.DenyHello, Message: err.Error() + "; name fewer upstreams and routes"}
	case errors.Is(err, errHelloBudget):
		return &link.Deny{Code: link.DenyUnavailable, Message: errHelloBudget.Error() + "; try again later", Retry: true}
	}
	return nil
}

// check authenticates a hello.
func (h *Hub) check(ctx context.Context, hello link.Hello) (Connector, *link.Deny) {
	o := h.options.Load()
	if o.Authenticate == nil {
		return Connector{}, &link.Deny{Code: link.DenyUnavailable, Message: "the gateway is starting", Retry: true}
	}
	connector, err := o.Authenticate(ctx, hello.Connector, hello.Secret)
	switch {
	case errors.Is(err, ErrUnavailable), err != nil && ctx.Err() != nil:
		return Connector{}, &link.Deny{Code: link.DenyUnavailable, Message: "the gateway cannot check the token now",
			Retry: true}
	case err != nil:
		return Connector{}, &link.Deny{
			Code: link.DenyCredentials,
			Message: "invalid tunnel token: the connector was removed or paired again on another machine, or the token " +
				"belongs to another gateway",
		}
	case h.holds(hello):
		return Connector{}, &denyHeld
	}
	return connector, nil
}

// start registers a session as its connector's current one and sends the welcome.
func (h *Hub) start(s *Session) *link.Deny {
	offer := h.options.Load().Offer(s.hello.OS)
	if offer != nil && version.Newer(offer.Version, s.hello.Version) {
		s.newer = offer.Version
	}
	old, ok := h.register(s)
	if !ok {
		return &denyShutdown
	}
	h.counters.connected.Add(1)
	s.log().Info("connector online", "name", s.connector.Name, "version", s.hello.Version,
		"instance", s.hello.Instance, "replaces", old != nil)
	if old != nil {
		old.replace(s)
	}
	s.introduce(link.Welcome{
		Session:         s.id,
		Version:         h.options.Load().Version,
		HeartbeatMillis: int(h.heartbeat().Milliseconds()),
		Offer:           offer,
	})
	s.rotate()
	h.replaceByPeer(s.connector.ID)
	return nil
}

// deny rejects a connection. who identifies the peer in the log.
func (p *connection) deny(who slog.Attr, d link.Deny) {
	h, remote := p.hub, p.conn.RemoteAddr()
	h.counters.denied.Add(1)
	p.place.release() // it only has to read the reason
	o, level := h.options.Load(), slog.LevelWarn
	if d.Code == link.DenyHeld || d.Code == link.DenyAgain { // usual in a cluster
		level = slog.LevelDebug
	}
	h.denials.Log(o.Logger, level, networksOf(remote).Widest(), time.Now(), "denying a connector",
		who, "remote", remote.String(), "code", d.Code)
	if p.send(d) {
		p.wait(denyGrace)
	}
	_ = p.conn.Close(link.CloseDenied, d.Reason())
}

// loggedID returns the connector id of a hello for the log. It comes from an
// unauthenticated connection, so an id with a wrong form is not logged.
func loggedID(id string) slog.Attr {
	const longest, characters = 40, "_0123456789abcdefghijklmnopqrstuvwxyz"
	if id == "" || len(id) > longest || strings.Trim(id, characters) != "" {
		return slog.String("connector_id", "invalid")
	}
	return slog.String("connector_id", id)
}
