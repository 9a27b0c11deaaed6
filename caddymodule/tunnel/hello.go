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
)

const (
	helloTimeout = 5 * time.Second
	// helloMoment is how long a connection keeps its handshake permit after its
	// handshake. Most hellos arrive with the end of the handshake, but a connector
	// with a silent tunnel waits for that tunnel first.
	helloMoment = 250 * time.Millisecond
	// denyGrace is how long a denied connector has to read the reason, and to close. A
	// slower one gets the reason with the close.
	denyGrace = time.Second
	// sendTimeout bounds one control message to a connector that does not read.
	sendTimeout = 5 * time.Second
)

// connection is a connection from a connector, or from a device that is being paired.
type connection struct {
	hub     *Hub
	conn    *link.Conn
	pending *pendingConn // until the hello is accepted
	stream  *quic.Stream
	control *link.Control // over stream
}

// serve handles one connection: its hello, then the session or pairing.
func (h *Hub) serve(conn *link.Conn) {
	c := &connection{hub: h, conn: conn, pending: pendingOf(conn.Context())}
	var run func()
	err := h.contain("reading a hello", func() (err error) {
		run, err = c.handshake()
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
		h.work("serving a connection", run) // on a fresh stack, as this one has grown
	}
}

// handshake reads a connection's hello and answers it. It returns the function that
// serves the connection from then on, nil if the connection was denied and closed.
func (c *connection) handshake() (run func(), err error) {
	ctx, cancel := context.WithTimeout(c.conn.Context(), helloTimeout)
	defer cancel()
	defer time.AfterFunc(helloMoment, c.pending.endHandshake).Stop()
	if c.stream, err = c.conn.AcceptStream(ctx); err != nil {
		return nil, fmt.Errorf("waiting for the control stream: %w", err)
	}
	deadline, _ := ctx.Deadline()
	_ = c.stream.SetDeadline(deadline)
	c.control = link.NewControl(c.stream)
	if c.conn.ConnectionState().TLS.NegotiatedProtocol == link.FormerALPN {
		c.deny(slog.Bool("hello", false), denyFormer)
		return nil, nil
	}
	m, err := c.control.ReceiveCounted(c.pending.reserveHello)
	if deny := denyFor(err); deny != nil {
		c.deny(slog.Bool("hello", false), *deny)
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
		c.deny(slog.Bool("hello", false), link.Deny{Code: link.DenyHello, Message: err.Error()})
		return nil, nil
	}
	if hello.Claim != "" {
		return c.handshakeDevice(ctx, hello), nil
	}
	connector, deny := c.hub.check(ctx, hello)
	if deny == nil && hello.DryRun {
		c.dryRun(connector)
		return nil, nil
	}
	if deny == nil {
		run, deny = c.startSession(connector, hello)
	}
	if deny != nil {
		c.deny(loggedID(hello.Connector), *deny)
	}
	return run, nil
}

// startSession registers the session of an authenticated connector. It returns the function that serves it.
func (c *connection) startSession(connector Connector, hello link.Hello) (run func(), deny *link.Deny) {
	c.accepted()
	s := newSession(c, connector, hello)
	defer func() {
		if run == nil { // after a deny, or a panic
			c.hub.remove(s)
		}
	}()
	if deny := c.hub.start(s); deny != nil {
		return nil, deny
	}
	// Review and SetIdentity may have run before the session was registered.
	if s.review(); c.pending.pin != c.hub.Pin() {
		s.refuse(denyIdentity)
	}
	return s.run, nil
}

// accepted ends the limits of a pending connection after a valid hello.
func (c *connection) accepted() {
	c.pending.free()
	_ = c.stream.SetDeadline(time.Time{})
}

// send writes one control message and reports whether that succeeded. Otherwise it
// closes the connection, as the message may have been written in part.
func (c *connection) send(m link.Message) bool {
	_ = c.stream.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err := c.control.Send(m); err != nil {
		c.end(link.CloseLost)
		return false
	}
	return true
}

// end closes the connection.
func (c *connection) end(code link.CloseCode) { _ = c.conn.Close(code, code.String()) }

// wait gives the other end time to read the last message, which a close would drop.
func (c *connection) wait(grace time.Duration) {
	select {
	case <-c.conn.Context().Done():
	case <-time.After(grace):
	}
}

// dryRun answers a connector that checks its token.
func (c *connection) dryRun(connector Connector) {
	c.pending.endHandshake()
	o := c.hub.options.Load()
	o.Logger.Info("connector checks its token", "connector_id", connector.ID, "remote", c.conn.RemoteAddr().String())
	w := link.Welcome{Version: o.Version}
	if o.Members != nil {
		w.Edges = o.Members().edges()
	}
	if c.send(w) {
		c.wait(sendTimeout) // the connector closes the connection after reading it
	}
	_ = c.conn.Close(link.CloseNone, "")
}

var (
	denyEdgeInUse = link.Deny{
		Code: link.DenyEdgeInUse, Message: "this edge has another tunnel of this connector already", Retry: true,
	}
	denyShutdown = link.Deny{Code: link.DenyShutdown, Message: "the gateway is shutting down", Retry: true}
	denyStarting = link.Deny{Code: link.DenyUnavailable, Message: "the gateway is starting", Retry: true}
	denyUnknown  = link.Deny{
		Code: link.DenyUnavailable, Message: "the gateway cannot check the token now", Retry: true,
	}
	// denyFormer can be retried: otherwise former connectors would suggest another token.
	denyFormer = link.Deny{
		Code: link.DenyUnavailable, Retry: true,
		Message: "this connector is too old for the gateway; run the install line again on its machine",
	}
	denyCredentials = link.Deny{
		Code: link.DenyCredentials,
		Message: "invalid tunnel token: the connector was removed or paired again on another machine, " +
			"or the token belongs to another gateway",
	}
	denyRotated = link.Deny{
		Code: link.DenyCredentials,
		Message: "the tunnel token has ended, as it was rotated; put the new one into tunnel_token of the connector's " +
			"configuration, or pair again",
	}
	denyIdentity = link.Deny{
		Code:    link.DenyCredentials,
		Message: "the gateway has a new identity, which the tunnel token does not know; pair again",
	}
)

// denyFor returns the deny for an error of reading a hello, nil if the connection failed.
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
		return Connector{}, &denyStarting
	}
	connector, err := o.Authenticate(ctx, hello.Connector, hello.Secret)
	switch {
	case errors.Is(err, ErrUnavailable), err != nil && ctx.Err() != nil:
		return Connector{}, &denyUnknown
	case errors.Is(err, ErrRotated):
		return Connector{}, &denyRotated
	case err != nil:
		return Connector{}, &denyCredentials
	case h.isMisdirected(hello):
		return Connector{}, &denyEdgeInUse
	}
	return connector, nil
}

// start registers a session as its connector's current one and sends the welcome.
func (h *Hub) start(s *Session) *link.Deny {
	old, ok := h.register(s)
	if !ok {
		return &denyShutdown
	}
	h.counters.connected.Add(1)
	s.log().Info("connector online", "name", s.connector.Name, "version", s.hello.Version,
		"instance", s.hello.Instance, "replaces", old != nil)
	if old != nil {
		old.replace()
	}
	s.sendWelcome(link.Welcome{
		Session:         s.id,
		Version:         h.options.Load().Version,
		HeartbeatMillis: int(h.heartbeat().Milliseconds()),
	})
	return nil
}

// deny rejects a connection. who identifies the other end in the log.
func (c *connection) deny(who slog.Attr, d link.Deny) {
	h, remote := c.hub, c.conn.RemoteAddr()
	h.counters.denied.Add(1)
	c.pending.endHandshake() // it only has to read the reason
	o, level := h.options.Load(), slog.LevelWarn
	if d.Code == link.DenyEdgeInUse { // normal in a cluster
		level = slog.LevelDebug
	}
	h.denials.Log(o.Logger, level, networksOf(remote).Widest(), time.Now(), "denying a connector",
		who, "remote", remote.String(), "code", d.Code)
	if c.send(d) {
		c.wait(denyGrace)
	}
	_ = c.conn.Close(link.CloseDenied, d.Reason())
}

// loggedID returns the connector id of a hello for the log. It comes from an
// unauthenticated connection, so an id with a wrong form is not logged.
func loggedID(id string) slog.Attr {
	const maxLength, characters = 40, "_0123456789abcdefghijklmnopqrstuvwxyz"
	if id == "" || len(id) > maxLength || strings.Trim(id, characters) != "" {
		return slog.String("connector_id", "invalid")
	}
	return slog.String("connector_id", id)
}
