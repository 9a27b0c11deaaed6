package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/postern-dev/postern/connector/link"
)

var (
	errNoHTTPS = errors.New("no answer over HTTPS")
	errPortal  = errors.New("a web page answers in place of the gateway")
	errNotNow  = errors.New("the gateway is not ready, or busy")
)

// webDialer makes connections to one gateway over its HTTPS port, for networks
// without UDP.
type webDialer struct {
	address string // URL of the WebSocket
	inner   *tls.Config
	proxy   func(*http.Request) (*url.URL, error)
	roots   *x509.CertPool   // nil: the system's
	now     func() time.Time // for certificates
	bbr     func(net.Conn) bool
	logger  *slog.Logger
	// maxRequests is how many requests are taken at once; 0: the default.
	maxRequests int
	// lenient: the certificate of the outer TLS cannot be verified. It is worth
	// one warning and no more: what counts is the pin inside.
	lenient atomic.Bool
}

// newWebDialer prepares to dial the gateway with the given HTTPS base URL; if it
// is empty, on the usual port of server's host.
func newWebDialer(base, server, pin string, logger *slog.Logger) *webDialer {
	if base == "" {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			host = server
		}
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		base = "https://" + host
	}
	return &webDialer{
		address: strings.TrimRight(base, "/") + link.WebSocketPath,
		inner:   link.ConnectorTLS(pin),
		proxy:   http.ProxyFromEnvironment,
		now:     time.Now,
		bbr:     link.UsesBBR,
		logger:  logger,
	}
}

// dial returns a connection to the gateway.
func (d *webDialer) dial(ctx context.Context) (link.Conn, error) {
	return d.dialHearing(ctx, newEar())
}

// dialHearing is dial that tells when somebody takes the TCP connection.
func (d *webDialer) dialHearing(ctx context.Context, heard *ear) (link.Conn, error) {
	lenient := d.lenient.Load()
	raw, err := d.open(ctx, lenient, heard)
	var unverified *tls.CertificateVerificationError
	if !lenient && errors.As(err, &unverified) {
		d.lenient.Store(true)
		d.logger.Warn("the gateway's HTTPS certificate cannot be verified; the tunnel inside is protected by the pin all the same",
			"url", d.address, "reason", legible(unverified.Err.Error()), "fix", certificateFix(unverified.Err, d.now()))
		raw, err = d.open(ctx, true, heard)
	}
	if err != nil {
		return nil, fmt.Errorf("dialling %s: %w", d.address, err)
	}
	conn, err := link.HTTP2Connector(ctx, raw, d.inner, link.RequestStreams(d.maxRequests))
	switch {
	case err == nil:
		return &webTunnel{conn, raw.bbr}, nil
	case errors.Is(err, link.ErrPin):
		err = link.ErrPin // without the words of TLS
	case ctx.Err() != nil:
		err = errNoHTTPS
	}
	return nil, fmt.Errorf("dialling %s: %w", d.address, err)
}

// certificateFix says what to do about a certificate, on a machine where it is
// now.
func certificateFix(err error, now time.Time) string {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return "check the clock of this machine: it says " + now.Format(time.RFC3339)
	}
	return "if a proxy in between opens TLS, install its certificate authority here; otherwise check the gateway's certificate"
}

// open opens the WebSocket.
func (d *webDialer) open(ctx context.Context, lenient bool, heard *ear) (*webConn, error) {
	var tcp atomic.Pointer[net.Conn]
	transport := &http.Transport{
		Proxy: d.proxy,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{Control: link.ControlBBR}).DialContext(ctx, network, address)
			if err == nil {
				tcp.Store(&conn)
				heard.hear()
			}
			return conn, err
		},
		TLSClientConfig:        &tls.Config{RootCAs: d.roots, Time: d.now, InsecureSkipVerify: lenient, NextProtos: []string{"http/1.1"}},
		MaxResponseHeaderBytes: maxDiscovery,
	}
	socket, answer, err := websocket.Dial(ctx, d.address, &websocket.DialOptions{
		HTTPClient: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		HTTPHeader:   http.Header{"User-Agent": {"postern-connector"}},
		Subprotocols: []string{link.Subprotocol},
	})
	if err != nil {
		transport.CloseIdleConnections()
		return nil, explainWebSocket(ctx, answer, err)
	}
	if socket.Subprotocol() != link.Subprotocol {
		_ = socket.CloseNow()
		return nil, errors.New("what answers there is a WebSocket, but not a gateway's; check the address")
	}
	below := *tcp.Load()
	return &webConn{
		Conn:   websocket.NetConn(context.Background(), socket, websocket.MessageBinary),
		socket: socket, remote: below.RemoteAddr(), bbr: d.bbr(below),
	}, nil
}

// explainWebSocket says what a failed attempt means, and what to do.
func explainWebSocket(ctx context.Context, answer *http.Response, err error) error {
	var proxy *net.OpError
	switch {
	case answer != nil:
		return explainAnswer(answer)
	case ctx.Err() != nil:
		return errNoHTTPS
	case errors.As(err, &proxy) && proxy.Op == "proxyconnect":
		return fmt.Errorf("the proxy cannot be used: %s; check HTTPS_PROXY and NO_PROXY", legible(proxy.Err.Error()))
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err // without the URL
	}
	return err
}

// explainAnswer says what an answer means that opens no WebSocket.
func explainAnswer(answer *http.Response) error {
	html := link.HasMediaType(answer.Header, "text/html")
	switch status := answer.StatusCode; {
	case status == http.StatusNetworkAuthenticationRequired, html && status < 400,
		status >= 300 && status < 400:
		return fmt.Errorf("%w (status %d)", errPortal, status)
	case status == http.StatusProxyAuthRequired:
		return errors.New("the proxy asks for a user name and password; put them into HTTPS_PROXY")
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests, status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return fmt.Errorf("%w (status %d)", errNotNow, status)
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status == http.StatusOK:
		return fmt.Errorf("no tunnels are taken there (status %d); check the address, and that the gateway's site has `model_gateway` and is up to date", status)
	default:
		return fmt.Errorf("the WebSocket was refused with status %d; check what is between this machine and the gateway", status)
	}
}

// webConn is a WebSocket as a connection.
type webConn struct {
	net.Conn
	socket *websocket.Conn
	remote net.Addr
	bbr    bool // the TCP connection below has it
}

// RemoteAddr implements net.Conn: the gateway's address, or the proxy's.
func (c *webConn) RemoteAddr() net.Addr { return c.remote }

// Close implements net.Conn. It does not wait for the other side, which HTTP/2
// has told.
func (c *webConn) Close() error { return c.socket.CloseNow() }

// webTunnel is a connection over a WebSocket with what only this transport has.
type webTunnel struct {
	link.Conn
	bbr bool // which it was given, of this side; the other one's is not known
}
