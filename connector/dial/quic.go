// Package dial makes connections to a gateway, and finds out where it is.
//
//	quic.go, socket*.go, activity.go   over QUIC, on a socket that takes a missing route for a lost packet
//	websocket.go                       over the gateway's HTTPS port, where UDP is blocked
//	race.go                            which of the two
//	probe.go, loss.go                  a path that is silent, and one that loses too much
//	discover.go                        where a gateway's tunnels are, for a pairing
package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// addressStagger is how long one address has for its handshake before the
	// next is tried in parallel, RFC 8305 §5.
	addressStagger = 250 * time.Millisecond
	// answeredStagger applies once anything has come back: the gateway is there, and
	// may be busy with many connectors that come at once.
	answeredStagger = 3 * time.Second
	// maxAddresses bounds the addresses of one name that are tried.
	maxAddresses = 8
)

// What an attempt over QUIC fails with.
var (
	ErrSilent     = errors.New("no answer over UDP")
	ErrUnfinished = errors.New("the gateway answers over UDP, but does not finish the handshake")
	ErrBusy       = errors.New("the gateway takes no connections at the moment: many connectors come at once, or it shuts down")
)

// tlsInternalError is what a gateway ends a handshake with that has waited in vain
// for its turn, RFC 9001 §4.8.
const tlsInternalError = quic.TransportErrorCode(0x100 + 80)

// Target is a gateway, and what a connection to it needs.
type Target struct {
	Server      string // host:port
	URL         string // base URL of its HTTPS; "": on the usual port of Server's host
	Pin         string // of its identity
	Preauth     string // [link.Preauth]; "" for a device that has no token
	MaxRequests int    // that are taken at once; 0: the default
	Logger      *slog.Logger
}

// QUIC makes connections to one gateway over QUIC.
type QUIC struct {
	Target
	TLS *tls.Config
	// Resolve looks up the addresses of a host:port.
	Resolve func(ctx context.Context, server string) ([]netip.AddrPort, error)
	// Open opens a UDP socket on a port of the system's choice.
	Open func(network string) (Socket, error)
}

// NewQUIC prepares to dial a gateway over QUIC.
func NewQUIC(t Target) *QUIC {
	return &QUIC{Target: t, TLS: link.WithPreauth(link.ConnectorTLS(t.Pin), t.Preauth), Resolve: Resolve, Open: openSocket}
}

// Dial returns a connection to the gateway: the name is looked up each time, and of
// several addresses the first that answers wins. activity may be nil.
func (d *QUIC) Dial(ctx context.Context, activity *Activity) (*Conn, error) {
	if activity == nil {
		activity = newActivity()
	}
	addresses, err := d.Resolve(ctx, d.Server)
	if err != nil {
		return nil, err
	}
	attempts := make([]attempt, len(addresses))
	for i, address := range addresses {
		attempts[i] = attempt{func(ctx context.Context) (*Conn, error) { return d.dialAddress(ctx, address, activity) }, addressStagger}
	}
	return stagger(ctx, attempts, activity.received, answeredStagger, func(_ *Conn, err error, _ int) (bool, error) {
		return err == nil || errors.Is(err, ErrBusy), err // a gateway is busy at each of its addresses
	})
}

// dialAddress makes a connection on a socket of its own. A socket that several
// connections shared would need connection ids on our side, of which a change
// of the NAT's mapping uses up one each time until none is left.
func (d *QUIC) dialAddress(ctx context.Context, address netip.AddrPort, activity *Activity) (*Conn, error) {
	network := "udp4"
	if address.Addr().Is6() {
		network = "udp6"
	}
	opened, err := d.Open(network)
	if err != nil {
		return nil, fmt.Errorf("opening a UDP socket: %w", err)
	}
	socket := &patientSocket{Socket: opened, activity: activity}
	conn, err := quic.Dial(ctx, socket, net.UDPAddrFromAddrPort(address), d.TLS, link.ConnectorQUIC(d.MaxRequests))
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("dialling %s: %w", address, dialError(ctx, err, socket.failure(), activity.answered()))
	}
	socket.patient.Store(true)
	context.AfterFunc(conn.Context(), func() { socket.Close() }) // quic-go leaves it to its owner
	return &Conn{Conn: link.QUICConnector(conn), socket: socket}, nil
}

// dialError says what a failed handshake means. failure is that of a packet which
// did not leave this machine, if there was one; answered says whether anything has
// come back.
func dialError(ctx context.Context, err, failure error, answered bool) error {
	var timeout *quic.HandshakeTimeoutError
	var idle *quic.IdleTimeoutError
	var transport *quic.TransportError
	isTransport := errors.As(err, &transport)
	switch {
	case errors.Is(err, link.ErrPin):
		return link.ErrPin // without the words of TLS
	case ctx.Err() != nil, errors.As(err, &timeout), errors.As(err, &idle):
		if answered {
			return ErrUnfinished
		}
		return ErrSilent
	case isTransport && transport.Remote && (transport.ErrorCode == quic.ConnectionRefused || transport.ErrorCode == tlsInternalError):
		return ErrBusy
	case isTransport && !transport.Remote && transport.ErrorCode == quic.InternalError && failure != nil:
		return failure // quic-go keeps only the text of it
	default:
		return err
	}
}

// Resolve looks up the addresses of server, a host:port. The two families take
// turns, so that one that does not work costs little.
func Resolve(ctx context.Context, server string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(server)
	if err != nil {
		return nil, fmt.Errorf("reading the server address: %w", err)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", service)
	if err != nil {
		return nil, fmt.Errorf("reading the server's port: %w", err)
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("resolving the server: %w", err)
	}
	return interleave(found, uint16(port)), nil
}

// interleave makes the families take turns, beginning with that of the first
// address.
func interleave(found []netip.Addr, port uint16) []netip.AddrPort {
	var same, other []netip.AddrPort
	for _, address := range found {
		address = address.Unmap()
		if address.Is4() == found[0].Unmap().Is4() {
			same = append(same, netip.AddrPortFrom(address, port))
		} else {
			other = append(other, netip.AddrPortFrom(address, port))
		}
	}
	var out []netip.AddrPort
	for i := range max(len(same), len(other)) {
		if i < len(same) {
			out = append(out, same[i])
		}
		if i < len(other) {
			out = append(out, other[i])
		}
	}
	return out[:min(len(out), maxAddresses)]
}
