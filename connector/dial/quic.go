// Package dial opens connections to a gateway, and discovers its address.
//
//	quic.go, socket*.go   over QUIC, on a socket that treats a missing route as packet loss
//	websocket.go          over the gateway's HTTPS port, where UDP is blocked
//	race.go               the choice between the two
//	discover.go           the address of a gateway's tunnels, for a pairing
package dial

import (
	"context"
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
	// addressStagger is the delay before the next address is tried in parallel, RFC 8305
	// §5.
	addressStagger = 250 * time.Millisecond
	// maxAddresses bounds the addresses tried for one name.
	maxAddresses = 8
)

// Errors of an attempt over QUIC.
var (
	ErrSilent = errors.New("no answer over UDP")
	ErrBusy   = errors.New("the gateway accepts no connections at the moment: many connectors are connecting, or it " +
		"is shutting down")
)

// tlsInternalError is the error with which a gateway ends a handshake that has waited too
// long for its turn, RFC 9001 §4.8.
const tlsInternalError = quic.TransportErrorCode(0x100 + 80)

// Target is a gateway, with the parameters of connections to it.
type Target struct {
	Server      string            // host:port
	URL         string            // base URL of its HTTPS; "": on the usual port of Server's host
	Token       func() link.Token // with the pin and the secret to use now; for a device, with a pin alone
	Claim       string            // pairing code of a device; "": it is a connector
	MaxRequests int               // concurrent requests; 0: the default
	MaxMemory   int64             // bytes of requests that may wait for model servers
	Logger      *slog.Logger
}

// config returns the QUIC configuration. The connection window leaves room for requests that wait for model servers:
// if they used it up, nothing would pass through the tunnel.
func (t Target) config() *quic.Config {
	c := link.ConnectorQUIC(t.MaxRequests)
	c.InitialConnectionReceiveWindow += uint64(t.MaxMemory)
	c.MaxConnectionReceiveWindow += uint64(t.MaxMemory)
	return c
}

// QUIC opens connections to one gateway over QUIC.
type QUIC struct {
	Target
	// Resolve looks up the addresses of a host:port.
	Resolve func(ctx context.Context, server string) ([]netip.AddrPort, error)
	// Open opens a UDP socket on a port of the system's choice.
	Open func(network string) (Socket, error)
}

// NewQUIC prepares to dial a gateway over QUIC.
func NewQUIC(t Target) *QUIC {
	return &QUIC{Target: t, Resolve: Resolve, Open: openSocket}
}

// Dial returns a connection to the gateway. It resolves the name each time, and uses the
// first address that answers.
func (d *QUIC) Dial(ctx context.Context) (*link.Conn, error) {
	addresses, err := d.Resolve(ctx, d.Server)
	if err != nil {
		return nil, err
	}
	runners := make([]Runner, len(addresses))
	for i, address := range addresses {
		runners[i].Delay = addressStagger
		runners[i].Dial = func(ctx context.Context) (*link.Conn, error) { return d.dialAddress(ctx, address) }
	}
	return stagger(ctx, runners, func(_ *link.Conn, err error, _ int) (bool, error) {
		return err == nil || errors.Is(err, ErrBusy), err // at another address, the gateway is busy, too
	})
}

// dialAddress opens a connection on a separate socket. A shared socket would need
// connection ids on this side, and each change of a NAT mapping would use one up.
func (d *QUIC) dialAddress(ctx context.Context, address netip.AddrPort) (*link.Conn, error) {
	network := "udp4"
	if address.Addr().Is6() {
		network = "udp6"
	}
	opened, err := d.Open(network)
	if err != nil {
		return nil, fmt.Errorf("opening a UDP socket: %w", err)
	}
	socket := &patientSocket{Socket: opened}
	token := d.Token()
	conn, err := quic.Dial(ctx, socket, net.UDPAddrFromAddrPort(address),
		link.ConnectorTLS(link.Preauth(token), token.Pin), d.config())
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("dialing %s: %w", address, dialError(ctx, err, socket.failure()))
	}
	socket.patient.Store(true)
	context.AfterFunc(conn.Context(), func() { socket.Close() }) // quic-go does not close it
	return &link.Conn{Conn: conn}, nil
}

// dialError returns the cause of a failed handshake. failure is the error of a packet that
// could not be sent, or nil.
func dialError(ctx context.Context, err, failure error) error {
	transport, isTransport := errors.AsType[*quic.TransportError](err)
	switch {
	case errors.Is(err, link.ErrPin):
		return link.ErrPin // without the text of TLS
	case ctx.Err() != nil, errors.As(err, new(*quic.HandshakeTimeoutError)), link.Silent(err):
		return ErrSilent
	case isTransport && transport.Remote &&
		(transport.ErrorCode == quic.ConnectionRefused || transport.ErrorCode == tlsInternalError):
		return ErrBusy
	case isTransport && !transport.Remote && transport.ErrorCode == quic.InternalError && failure != nil:
		return failure // quic-go keeps only its text
	default:
		return err
	}
}

// Resolve looks up the addresses of server, a host:port. IPv4 and IPv6 alternate, so that
// a broken family costs little.
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

// interleave alternates the address families, beginning with that of the first address.
func interleave(found []netip.Addr, port uint16) []netip.AddrPort {
	var families [2][]netip.AddrPort
	for _, address := range found {
		family := 0
		if address = address.Unmap(); address.Is4() != found[0].Unmap().Is4() {
			family = 1
		}
		families[family] = append(families[family], netip.AddrPortFrom(address, port))
	}
	var out []netip.AddrPort
	for i := range found {
		for _, addresses := range families {
			if i < len(addresses) {
				out = append(out, addresses[i])
			}
		}
	}
	return out[:min(len(out), maxAddresses)]
}
