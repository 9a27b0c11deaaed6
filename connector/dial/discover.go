package dial

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	discoveryPath     = "/.well-known/postern"
	rootPath          = "/console/root.crt" // of the root certificate of the gateway's own authority
	HTTPTimeout       = 10 * time.Second
	discoveryAttempts = 5 // while the gateway is starting
	// maxDiscovery bounds the answer in bytes; a real one is about 300 bytes long.
	maxDiscovery = 16 << 10
	// maxRoots bounds a file with certificate authorities in bytes; those of the Web are
	// 200 KiB long.
	maxRoots = 4 << 20
)

// errStarting means that the gateway does not know the address of its tunnels yet.
var errStarting = errors.New("it is starting")

// Gateway is the address of a gateway, as published by it at discoveryPath.
type Gateway struct {
	Server  string `json:"server"`  // host:port that connectors dial
	URL     string `json:"-"`       // of the request, without a path
	Pin     string `json:"pin"`     // of its identity
	Console string `json:"console"` // URL of the page to approve a pairing on, "" unknown
}

// Discovery asks a gateway for the address of its tunnels.
type Discovery struct {
	url         *url.URL
	pin, server string
	client      *http.Client
	ca          bool // one is given
}

// DiscoveryOptions are the expectations of a [Discovery]. The zero value expects nothing.
type DiscoveryOptions struct {
	Pin    string // must equal the published one
	Server string // host:port that replaces the published one
	CA     string // file with authorities to trust in addition to the system's, as PEM
}

// NewDiscovery prepares to ask the gateway at a URL for the address of its tunnels and
// its pin. The answer is trusted over HTTPS, from this machine, or with the expected pin. With a pin, the
// certificate does not matter: every tunnel is checked against the pin.
func NewDiscovery(gatewayURL string, o DiscoveryOptions) (*Discovery, error) {
	location, err := parseGatewayURL(gatewayURL, o.Pin)
	if err != nil {
		return nil, err
	}
	d := &Discovery{url: location, pin: o.Pin, server: o.Server, client: HTTPClient()}
	trust := new(tls.Config)
	d.client.Transport.(*http.Transport).TLSClientConfig = trust
	if o.Pin != "" {
		if err := link.CheckPin(o.Pin); err != nil {
			return nil, fmt.Errorf("--pin: %w; copy it again from the gateway", err)
		}
		trust.InsecureSkipVerify = true
	}
	if o.Server != "" {
		if err := config.CheckServer(o.Server); err != nil {
			return nil, fmt.Errorf("--server: %w", err)
		}
	}
	if d.ca = o.CA != ""; d.ca {
		if location.Scheme != "https" {
			return nil, errors.New("--ca: without HTTPS there is no certificate to verify; write https://, or omit --ca")
		}
		if trust.RootCAs, err = roots(o.CA); err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
	}
	return d, nil
}

// roots returns the system's certificate authorities and those in a file.
func roots(path string) (*x509.CertPool, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxRoots))
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // the file may suffice
	}
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s contains no certificate; it must be a PEM file, with lines like -----BEGIN "+
			"CERTIFICATE-----", path)
	}
	return pool, nil
}

// Origin returns the URL of the gateway, without a path.
func (d *Discovery) Origin() string { return d.url.Scheme + "://" + d.url.Host }

// Client returns the client that asks the gateway, with its trust.
func (d *Discovery) Client() *http.Client { return d.client }

// Find asks the gateway. Its errors name the cause and the fix.
func (d *Discovery) Find(ctx context.Context) (Gateway, error) {
	for attempt := 1; ; attempt++ {
		g, err := d.ask(ctx)
		if attempt == discoveryAttempts || !errors.Is(err, errStarting) {
			return g, err
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return Gateway{}, err
		}
	}
}

// HTTPClient returns a client for a gateway's HTTPS port. It trusts the system's
// certificate authorities and follows no redirects. It uses HTTP/1.1, like the WebSocket
// of a tunnel.
func HTTPClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			Protocols:              protocols,
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: maxDiscovery,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       HTTPTimeout,
	}
}

// parseGatewayURL accepts the URL of a gateway, its API or its console, with or without
// https://. Only the scheme and the host count.
func parseGatewayURL(raw, pin string) (*url.URL, error) {
	const example = "https://gateway.example.com"
	raw = strings.TrimSpace(raw)
	if !strings.Contains(raw, "://") {
		raw = "https://" + raw
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, fmt.Errorf("the gateway's address is not a URL; write one like %q", example)
	case u.User != nil:
		return nil, errors.New("the gateway's URL must not contain a user name or password; only the code is needed")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("the gateway's URL begins with %q; write one like %q", u.Scheme+"://", example)
	case u.Scheme == "http" && pin == "" && !loopback(u.Hostname()):
		return nil, fmt.Errorf("http://%s is not authenticated; use %q or, if the gateway has no HTTPS, give --pin with "+
			"the pin shown on the gateway's machine with `caddy gateway status`",
			u.Host, "https://"+u.Hostname())
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: discoveryPath}, nil
}

// loopback reports whether a host is this machine. It does not use DNS.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

func (d *Discovery) ask(ctx context.Context) (Gateway, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url.String(), nil)
	if err != nil {
		return Gateway{}, fmt.Errorf("asking the gateway: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := d.client.Do(request)
	if err != nil {
		return Gateway{}, d.Explain(ctx, d.url, err, OrPin)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDiscovery+1))
	if err != nil {
		return Gateway{}, d.Explain(ctx, d.url, err, OrPin)
	}
	var answer struct {
		Gateway
		Error string `json:"error"` // if it is set, the other fields are empty
	}
	parseErr := json.Unmarshal(body, &answer)
	switch {
	case response.StatusCode >= 300 && response.StatusCode < 400:
		return Gateway{}, fmt.Errorf("%s redirects to %q; if that is the gateway, use that address", d.Origin(),
			text.Short(response.Header.Get("Location")))
	case response.StatusCode != http.StatusOK && parseErr == nil && answer.Error != "":
		err := fmt.Errorf("the gateway at %s answered: %s", d.Origin(), text.Short(answer.Error))
		if response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") != "" {
			err = fmt.Errorf("%w (%w)", err, errStarting)
		}
		return Gateway{}, err
	case response.StatusCode != http.StatusOK:
		return Gateway{}, fmt.Errorf("%s is not a Postern gateway, or pairing is disabled on it: GET %s answered with "+
			"status %d; check the address",
			d.Origin(), discoveryPath, response.StatusCode)
	case parseErr != nil || len(body) > maxDiscovery || answer.Server == "" || answer.Pin == "":
		return Gateway{}, fmt.Errorf("%s is not a Postern gateway: unexpected answer to GET %s; check the address",
			d.Origin(), discoveryPath)
	}
	return d.check(answer.Gateway)
}

// check validates and completes an answer.
func (d *Discovery) check(g Gateway) (Gateway, error) {
	g.Server, g.URL = cmp.Or(d.server, g.Server), d.Origin()
	err := config.CheckServer(g.Server)
	if err == nil && text.Short(g.Server) != g.Server {
		err = errors.New("it is too long, or not printable")
	}
	if err != nil {
		return Gateway{}, fmt.Errorf("the gateway at %s publishes an invalid address for tunnels: %w; set it on the "+
			"gateway, or give --server HOST:PORT", d.Origin(), err)
	}
	if err := link.CheckPin(g.Pin); err != nil {
		return Gateway{}, fmt.Errorf("the gateway at %s publishes an invalid pin: %w", d.Origin(), err)
	}
	if d.pin != "" && g.Pin != d.pin {
		return Gateway{}, fmt.Errorf("the gateway at %s publishes the pin %s, not the expected one: either --pin belongs "+
			"to another gateway, or another server answers there; compare it with the pin on the gateway",
			d.Origin(), g.Pin)
	}
	u, err := url.Parse(g.Console)
	g.Console = ""
	if err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil {
		g.Console = u.String() // escapes unprintable characters
	}
	return g, nil
}

// Root returns the root certificate of the authority of the gateway at a URL, as PEM. Only its SHA-256 verifies it.
func Root(ctx context.Context, gatewayURL, sum string) ([]byte, error) {
	location, err := parseGatewayURL(gatewayURL, sum)
	if err != nil {
		return nil, err
	}
	location.Path = rootPath
	client := HTTPClient()
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	response, err := client.Do((&http.Request{Method: http.MethodGet, URL: location}).WithContext(ctx))
	if err != nil {
		return nil, new(Discovery).Explain(ctx, location, err, "")
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDiscovery))
	if got := sha256.Sum256(body); err != nil || !strings.EqualFold(hex.EncodeToString(got[:]), sum) {
		return nil, fmt.Errorf("%s (status %d) is not the root certificate with the SHA-256 of --ca: another server answers "+
			"there, or the gateway has a new authority; create a new code", location, response.StatusCode)
	}
	return body, nil
}

// OrPin is the end of the fix for a certificate, where a pin is enough.
const OrPin = ", or give --pin with the pin shown on the gateway's machine with `caddy gateway status`"

// Explain adds the cause and the fix to the error of a failed request. The fix for a certificate ends in orPin:
// [OrPin], or "" if a pin does not help.
func (d *Discovery) Explain(ctx context.Context, location *url.URL, err error, orPin string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed, ok := errors.AsType[*url.Error](err)
	if ok {
		err = failed.Err // without the URL
	}
	host, fix := location.Host, "give --ca with the root certificate of the gateway's authority"
	if d.ca {
		fix = "the authority of --ca has not issued it: give the root certificate of the gateway's authority"
	}
	switch {
	case errors.As(err, new(x509.HostnameError)):
		return fmt.Errorf("the certificate at %s is for another name: %w; use the name in the certificate%s", host, err,
			orPin)
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return fmt.Errorf("the certificate of %s is not trusted by this machine: %w; %s%s", host, err, fix, orPin)
	case errors.As(err, new(tls.RecordHeaderError)), errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s does not speak HTTPS: %w; check the port, or write http:// if the gateway has no HTTPS", host,
			err)
	case errors.As(err, new(*net.DNSError)):
		return fmt.Errorf("failed to resolve %s: %w; check the address", location.Hostname(), err)
	case ok && failed.Timeout():
		return fmt.Errorf("%s did not answer within %v; check the address, and that the gateway is running", host,
			HTTPTimeout)
	default:
		return fmt.Errorf("cannot reach %s: %w; check the address, and that the gateway is running", host, err)
	}
}
