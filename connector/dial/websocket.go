package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
)

// Errors of an attempt over a WebSocket.
var (
	ErrNoHTTPS  = errors.New("no answer over HTTPS")
	ErrPortal   = errors.New("a web page answers in place of the gateway")
	ErrNotReady = errors.New("the gateway is not ready, or busy")
)

// WebSocket opens connections to one gateway over its HTTPS port, for networks without
// UDP.
type WebSocket struct {
	Target
	Address string // URL of the WebSocket
	Proxy   func(*http.Request) (*url.URL, error)
	Roots   *x509.CertPool   // for the certificate of the HTTPS port; nil: the system's
	Now     func() time.Time // for that certificate
	// skipOuterVerification is set once the certificate of the outer TLS could not be verified. That
	// is logged once, as the pin inside authenticates the gateway.
	skipOuterVerification atomic.Bool
}

// NewWebSocket returns a WebSocket for the HTTPS port of a gateway.
func NewWebSocket(t Target) *WebSocket {
	base := t.URL
	if base == "" {
		host, _, err := net.SplitHostPort(t.Server)
		if err != nil {
			host = t.Server
		}
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		base = "https://" + host
	}
	return &WebSocket{
		Target: t, Address: strings.TrimRight(base, "/") + link.WebSocketPath,
		Proxy: http.ProxyFromEnvironment, Now: time.Now,
	}
}

// Dial returns a connection to the gateway.
func (d *WebSocket) Dial(ctx context.Context) (*link.Conn, error) {
	skip := d.skipOuterVerification.Load()
	raw, err := d.open(ctx, skip)
	if unverified, ok := errors.AsType[*tls.CertificateVerificationError](err); ok && !skip {
		d.skipOuterVerification.Store(true)
		d.Logger.Warn("the gateway's HTTPS certificate cannot be verified; the tunnel itself is still protected by the pin",
			"url", d.Address, "reason", text.Short(unverified.Err.Error()), "fix", CertificateFix(unverified.Err, d.Now()))
		raw, err = d.open(ctx, true)
	}
	if err != nil {
		return nil, fmt.Errorf("dialing %s: %w", d.Address, err)
	}
	conn, err := link.WebSocketConnector(ctx, raw, link.ConnectorTLS("", d.Token().Pin), d.config())
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, link.ErrPin):
		err = link.ErrPin // without the text of TLS
	case ctx.Err() != nil:
		err = ErrNoHTTPS
	}
	return nil, fmt.Errorf("dialing %s: %w", d.Address, err)
}

// CertificateFix returns the fix for an invalid certificate. now is this machine's time.
func CertificateFix(err error, now time.Time) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "check the clock of this machine: it shows " + now.Format(time.RFC3339)
	}
	return "if a proxy terminates TLS, install its certificate authority here; otherwise check the gateway's certificate"
}

// preauth returns the preauthentication, "" for none. A pairing code is proven only to a server with
// a valid certificate.
func (d *WebSocket) preauth(skipVerification bool) string {
	switch {
	case d.Claim == "":
		return link.Preauth(d.Token())
	case skipVerification || !strings.HasPrefix(d.Address, "https://"):
		return ""
	}
	return link.PreauthClaim(d.Token().Pin, d.Claim)
}

// open opens the WebSocket.
func (d *WebSocket) open(ctx context.Context, skipVerification bool) (net.Conn, error) {
	var tcp atomic.Pointer[net.Conn]
	transport := &http.Transport{
		Proxy: d.Proxy,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				tcp.Store(&conn)
			}
			return conn, err
		},
		TLSClientConfig: &tls.Config{
			RootCAs: d.Roots, Time: d.Now, InsecureSkipVerify: skipVerification,
			NextProtos: []string{"http/1.1"},
		},
		MaxResponseHeaderBytes: maxDiscovery,
	}
	header := http.Header{"User-Agent": {"postern-connector"}}
	if preauth := d.preauth(skipVerification); preauth != "" {
		header.Set(link.PreauthHeader, preauth)
	}
	socket, answer, err := websocket.Dial(ctx, d.Address, //nolint:bodyclose // the library closes it
		&websocket.DialOptions{
			HTTPClient: &http.Client{
				Transport:     transport,
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			},
			HTTPHeader:   header,
			Subprotocols: []string{link.Subprotocol},
		})
	if err != nil {
		transport.CloseIdleConnections()
		return nil, explainWebSocket(ctx, answer, err)
	}
	if socket.Subprotocol() != link.Subprotocol {
		_ = socket.CloseNow()
		return nil, errors.New("the WebSocket there does not belong to a gateway; check the address")
	}
	stream := websocket.NetConn(context.Background(), socket, websocket.MessageBinary)
	return link.NewWebSocket(stream, (*tcp.Load()).RemoteAddr(), socket.CloseNow), nil
}

// explainWebSocket returns the cause of a failed attempt, and the fix.
func explainWebSocket(ctx context.Context, answer *http.Response, err error) error {
	var proxy *net.OpError
	switch {
	case answer != nil:
		return explainAnswer(answer)
	case ctx.Err() != nil:
		return ErrNoHTTPS
	case errors.As(err, &proxy) && proxy.Op == "proxyconnect":
		return fmt.Errorf("the proxy cannot be used: %s; check HTTPS_PROXY and NO_PROXY", text.Short(proxy.Err.Error()))
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the URL
	}
	return err
}

// explainAnswer returns the meaning of an HTTP answer without a WebSocket.
func explainAnswer(answer *http.Response) error {
	html := link.HasMediaType(answer.Header, "text/html")
	switch status := answer.StatusCode; {
	case status == http.StatusNetworkAuthenticationRequired, html && status < 400,
		status >= 300 && status < 400:
		return fmt.Errorf("%w (status %d)", ErrPortal, status)
	case status == http.StatusProxyAuthRequired:
		return errors.New("the proxy requires a user name and password; put them into HTTPS_PROXY")
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests, status == http.StatusBadGateway,
		status == http.StatusGatewayTimeout:
		return fmt.Errorf("%w (status %d)", ErrNotReady, status)
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status == http.StatusOK:
		return fmt.Errorf("the server does not accept tunnels (status %d); check the address, and that the gateway's site "+
			"has `model_gateway` and is up to date", status)
	default:
		return fmt.Errorf("the WebSocket was refused with status %d; check proxies between this machine and the gateway",
			status)
	}
}
