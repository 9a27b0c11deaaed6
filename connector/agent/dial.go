package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// addressStagger is how long one address has for its handshake before the
	// next is tried beside it, RFC 8305 §5.
	addressStagger = 250 * time.Millisecond
	// heardStagger is that once anything has come back: the gateway is there, and
	// may be busy with many connectors that come at once.
	heardStagger = 3 * time.Second
	// maxAddresses bounds the addresses of one name that are tried.
	maxAddresses = 8
)

// tlsInternalError is what a gateway ends a handshake with that has waited in vain
// for its turn, RFC 9001 §4.8.
const tlsInternalError = quic.TransportErrorCode(0x100 + 80)

// dialer makes connections to one gateway.
type dialer struct {
	server  string // host:port
	tls     *tls.Config
	resolve func(ctx context.Context, server string) ([]netip.AddrPort, error)
	open    func(network string) (udpSocket, error)
	// maxRequests is how many requests are taken at once; 0: the default.
	maxRequests int
}

func newDialer(server, pin string) *dialer {
	return &dialer{server: server, tls: link.ConnectorTLS(pin), resolve: resolve, open: openSocket}
}

// dial returns a connection to the gateway: the name is looked up anew each
// time, and of several addresses the first that answers wins.
func (d *dialer) dial(ctx context.Context) (link.Conn, error) {
	return d.dialHearing(ctx, newEar())
}

// dialHearing is dial that tells of the first packet that comes back.
func (d *dialer) dialHearing(ctx context.Context, heard *ear) (link.Conn, error) {
	addresses, err := d.resolve(ctx, d.server)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()                                // stops the losers
	results := make(chan dialled, len(addresses)) // nobody waits for the losers
	next := time.NewTimer(0)
	defer next.Stop()
	var errs []error
	first := heard.ch
	for waiting := addresses; len(errs) < len(addresses); {
		select {
		case <-first:
			first = nil
			next.Reset(heardStagger)
		case <-next.C:
			if len(waiting) == 0 {
				continue
			}
			address := waiting[0]
			waiting = waiting[1:]
			go func() {
				conn, err := d.dialAddress(ctx, address, heard)
				results <- dialled{conn, err}
			}()
			next.Reset(addressStagger)
		case r := <-results:
			if r.err == nil || errors.Is(r.err, errBusy) { // which it is at each of its addresses
				go discard(results, len(addresses)-len(waiting)-len(errs)-1)
				return r.conn, r.err
			}
			errs = append(errs, r.err)
			next.Reset(0)
		}
	}
	return nil, errors.Join(errs...)
}

// dialAddress makes a connection on a socket of its own. A socket that several
// connections shared would need connection ids on our side, of which a change
// of the NAT's mapping uses up one each time until none is left.
func (d *dialer) dialAddress(ctx context.Context, address netip.AddrPort, heard *ear) (link.Conn, error) {
	network := "udp4"
	if address.Addr().Is6() {
		network = "udp6"
	}
	opened, err := d.open(network)
	if err != nil {
		return nil, fmt.Errorf("opening a UDP socket: %w", err)
	}
	config := link.ConnectorQUIC()
	config.MaxIncomingStreams = int64(link.RequestStreams(d.maxRequests))
	echo := &echoSocket{udpSocket: opened}
	socket := &patientSocket{udpSocket: echo, heard: heard}
	conn, err := quic.Dial(ctx, socket, net.UDPAddrFromAddrPort(address), d.tls, config)
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("dialling %s: %w", address, dialError(ctx, err, socket.failure(), heard.heard()))
	}
	socket.endure()
	go func() { // quic-go leaves a socket that it did not open to its owner
		<-conn.Context().Done()
		socket.Close()
	}()
	return &quicTunnel{Conn: link.QUICConnector(conn), stats: conn.ConnectionStats, socket: echo}, nil
}

// dialError says what a failed handshake means. failure is that of a packet which
// did not leave this machine, if there was one; heard tells whether anything has
// come back.
func dialError(ctx context.Context, err, failure error, heard bool) error {
	var timeout *quic.HandshakeTimeoutError
	var idle *quic.IdleTimeoutError
	var transport *quic.TransportError
	isTransport := errors.As(err, &transport)
	switch {
	case errors.Is(err, link.ErrPin):
		return link.ErrPin // without the words of TLS
	case ctx.Err() != nil, errors.As(err, &timeout), errors.As(err, &idle):
		if heard {
			return errUnfinished
		}
		return errSilent
	case isTransport && transport.Remote && (transport.ErrorCode == quic.ConnectionRefused || transport.ErrorCode == tlsInternalError):
		return errBusy
	case isTransport && !transport.Remote && transport.ErrorCode == quic.InternalError && failure != nil:
		return failure // quic-go keeps no more of it than the text
	default:
		return err
	}
}

// resolve looks up the addresses of server, a host:port. The two families take
// turns, so that one that does not work costs little.
func resolve(ctx context.Context, server string) ([]netip.AddrPort, error) {
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
