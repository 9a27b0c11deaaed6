// Package doctor checks everything that a connector needs, and suggests fixes.
package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
)

// Result is the result of a check.
type Result string

// The results of a check.
const (
	ResultOK      Result = "ok"
	ResultWarning Result = "warning" // a fault that does not stop requests now
	ResultFailed  Result = "failed"
	ResultSkipped Result = "skipped" // depends on a check that failed
)

// Finding is the result of one check, with details.
type Finding struct {
	Check    string        `json:"check"`
	Result   Result        `json:"result"`
	Detail   string        `json:"detail"`
	Fix      string        `json:"fix,omitempty"`
	Duration time.Duration `json:"duration_ns"`
}

// ok, warned, bad and skipped return findings.
func ok(format string, args ...any) Finding {
	return Finding{Result: ResultOK, Detail: fmt.Sprintf(format, args...)}
}

func warned(fix, format string, args ...any) Finding {
	return Finding{Result: ResultWarning, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

func bad(fix, format string, args ...any) Finding {
	return Finding{Result: ResultFailed, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

func skipped(detail string) Finding { return Finding{Result: ResultSkipped, Detail: detail} }

const (
	// diagnoseTimeout is enough for a handshake with packet loss.
	diagnoseTimeout = 5 * time.Second
	// maxSkew bounds the error of a clock, so that newly issued certificates are valid.
	maxSkew = time.Minute
	// maxDetail bounds the detail of a finding in bytes: an address, an error and its
	// consequence.
	maxDetail = 500
)

// diagnosis runs the checks, one after the other.
type diagnosis struct {
	config config.Config
	target dial.Target
	client *http.Client
	now    func() time.Time
	report func(Finding)

	dialTimeout  time.Duration
	probeTimeout time.Duration
	measured     string // the model whose context window is measured, "" for none

	resolved          bool           // the gateway's address is known
	udpErr            error          // of the handshake over QUIC
	overHTTPS         func() Finding // of the request for a WebSocket
	acceptsWebSockets bool           // the gateway does
	untrusted         error          // of the gateway's certificate
	date              time.Time      // of the gateway
	edges             []link.Edge
}

// Run checks a configuration's gateway (name, transports, identity, token, edges of a cluster), the clock, and each
// upstream with a short request to its first model. Unless measured is "", it measures the context
// window of that model. It reports each finding at once, and does not disturb a running connector.
func Run(
	ctx context.Context, c config.Config, probeTimeout time.Duration, measured string, report func(Finding),
) error {
	if err := c.Validate(); err != nil {
		return err
	}
	token, err := link.ParseToken(c.TunnelToken)
	if err != nil {
		return fmt.Errorf("tunnel_token: %w", err)
	}
	d := &diagnosis{
		config: c, client: dial.HTTPClient(), now: time.Now, report: report,
		target: dial.Target{
			Server: cmp.Or(c.Server, token.Server), URL: token.URL,
			Token: func() link.Token { return token }, Logger: slog.New(slog.DiscardHandler),
		},
		dialTimeout: diagnoseTimeout, probeTimeout: probeTimeout, measured: measured,
	}
	d.run(ctx)
	return ctx.Err()
}

func (d *diagnosis) run(ctx context.Context) {
	d.check(ctx, "dns", d.dns)
	d.overHTTPS = sync.OnceValue(func() Finding { return d.webSocket(ctx) })
	overHTTPS := func(context.Context) Finding { return d.overHTTPS() }
	for _, c := range []struct {
		name string
		run  func(context.Context) Finding
	}{{"udp", d.overUDP}, {"pin", d.pin}, {"websocket", overHTTPS}, {"token", d.askToken}} {
		if !d.resolved {
			c.run = func(context.Context) Finding { return skipped("the gateway's address is unknown") }
		}
		d.check(ctx, c.name, c.run)
	}
	if len(d.edges) > 0 {
		d.check(ctx, "edges", d.reachEdges)
	}
	d.check(ctx, "clock", d.clock)
	d.upstreams(ctx)
}

// check runs one check and reports its finding.
func (d *diagnosis) check(ctx context.Context, name string, f func(context.Context) Finding) {
	if ctx.Err() != nil {
		return
	}
	start := time.Now()
	finding := f(ctx)
	if ctx.Err() != nil {
		return // the interruption may have caused the finding
	}
	finding.Check, finding.Duration = name, time.Since(start)
	finding.Detail = text.Printable(finding.Detail, maxDetail)
	d.report(finding)
}

func (d *diagnosis) dns(ctx context.Context) Finding {
	host, _, _ := net.SplitHostPort(d.target.Server)
	ctx, cancel := context.WithTimeout(ctx, dial.HTTPTimeout)
	defer cancel()
	addresses, err := dial.Resolve(ctx, d.target.Server)
	if err != nil || len(addresses) == 0 {
		return bad("check the spelling of the gateway's name, and this machine's DNS server: nslookup "+host,
			"%s has no address: %v", host, err)
	}
	d.resolved = true
	if _, err := netip.ParseAddr(host); err == nil {
		return ok("%s is an address, not a name", host)
	}
	text := make([]string, len(addresses))
	for i, a := range addresses {
		text[i] = a.Addr().String()
	}
	return ok("%s is %s", host, strings.Join(text, ", "))
}

// answersUDP reports whether any gateway answers over QUIC.
func (d *diagnosis) answersUDP() bool { return d.udpErr == nil || errors.Is(d.udpErr, link.ErrPin) }

// overUDP connects over QUIC, without a hello.
func (d *diagnosis) overUDP(ctx context.Context) Finding {
	if d.udpErr = d.reach(ctx, d.target.Server); d.answersUDP() {
		return ok("a gateway answers over QUIC at %s", d.target.Server)
	}
	_, port, _ := net.SplitHostPort(d.target.Server)
	if d.overHTTPS(); d.acceptsWebSockets {
		return warned("for a lower latency, open UDP port "+port+" in the firewalls of the gateway and of this network",
			"no answer over QUIC at %s: %s; the tunnel uses the WebSocket", d.target.Server, agent.Reason(d.udpErr))
	}
	return bad("check that the gateway is running, and that UDP port "+port+
		" is open in its firewall and in this network's (outgoing)",
		"no answer over QUIC at %s: %s", d.target.Server, agent.Reason(d.udpErr))
}

func (d *diagnosis) pin(context.Context) Finding {
	switch {
	case d.udpErr == nil:
		return ok("the gateway is the one that created the tunnel token")
	case errors.Is(d.udpErr, link.ErrPin):
		return bad("check `server`; if the gateway lost its storage, pair again or create a new token on the gateway's "+
			"machine with `caddy gateway connector create`",
			"the server at %s is not the gateway that created the tunnel token", d.target.Server)
	default:
		return skipped("unknown without an answer over QUIC")
	}
}

// webSocket requests the tunnel's path without an upgrade. A gateway answers with 426.
func (d *diagnosis) webSocket(ctx context.Context) Finding {
	if d.config.Transport == config.TransportQUIC {
		return skipped(`the configuration has "transport": "quic"`)
	}
	wrong := bad
	if d.answersUDP() {
		wrong = warned // the WebSocket is only a fallback
	}
	url := dial.NewWebSocket(d.target).Address
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return wrong("check `server`", "invalid address: %v", err)
	}
	response, err := d.ask(request)
	if err != nil {
		return wrong("serve HTTPS on the gateway at "+strings.TrimSuffix(url, link.WebSocketPath)+
			", and let this machine reach it (HTTPS_PROXY names a proxy)",
			"no WebSocket, the fallback where UDP is blocked: %v", new(dial.Discovery).Explain(ctx, request.URL, err, ""))
	}
	response.Body.Close()
	d.date, _ = http.ParseTime(response.Header.Get("Date"))
	d.acceptsWebSockets = response.StatusCode == http.StatusUpgradeRequired
	switch {
	case d.acceptsWebSockets && errors.As(d.untrusted, new(x509.UnknownAuthorityError)):
		return ok("the gateway accepts tunnels at %s; this machine does not know the authority of its certificate, and "+
			"verifies the gateway by the pin", url)
	case d.acceptsWebSockets && d.untrusted != nil:
		return warned(dial.CertificateFix(d.untrusted, d.now()),
			"the gateway accepts tunnels at %s, but its certificate cannot be verified (%v); the tunnel itself is still "+
				"protected by the pin", url, d.untrusted)
	case d.acceptsWebSockets:
		return ok("the gateway accepts tunnels at %s", url)
	case link.HasMediaType(response.Header, "text/html"):
		return wrong("open a page in a browser on this machine and sign in to the network, or check that this host is the "+
			"gateway",
			"%s answers with a web page (status %d): the network's login page, or not a gateway", url, response.StatusCode)
	default:
		return wrong("check that this host is the gateway, that it is up to date, and that its site passes on "+
			link.WebSocketPath,
			"%s answers with status %d, and does not accept tunnels", url, response.StatusCode)
	}
}

// ask sends a request. If the certificate is not trusted, it repeats the request without
// verification, like a connector: the pin protects the tunnel.
func (d *diagnosis) ask(request *http.Request) (*http.Response, error) {
	response, err := d.client.Do(request)
	if unverified, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		d.untrusted = unverified.Err
		d.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		response, err = d.client.Do(request)
	}
	return response, err
}

func (d *diagnosis) clock(context.Context) Finding {
	if d.date.IsZero() {
		return skipped("unknown without an answer over HTTPS")
	}
	skew := d.now().Sub(d.date).Round(time.Second)
	if skew.Abs() <= maxSkew {
		return ok("within %v of the gateway's", max(skew.Abs(), time.Second))
	}
	direction := "ahead of"
	if skew < 0 {
		direction = "behind"
	}
	return bad("synchronize the clock, on Linux with: sudo timedatectl set-ntp true; if this clock is right, do so on "+
		"the gateway",
		"this machine's clock is %s the gateway's: it shows %s, the gateway's shows %s",
		direction, d.now().UTC().Format(time.RFC3339), d.date.UTC().Format(time.RFC3339))
}

// askToken checks whether the gateway would accept the connector. Its hello does not replace the
// connector's tunnel.
func (d *diagnosis) askToken(ctx context.Context) Finding {
	if !d.answersUDP() && !d.acceptsWebSockets {
		return skipped("the gateway cannot be reached")
	}
	ctx, cancel := context.WithTimeout(ctx, d.dialTimeout)
	defer cancel()
	c := d.config
	if c.Transport = config.TransportQUIC; !d.answersUDP() {
		c.Transport = config.TransportWebSocket
	}
	var err error
	d.edges, err = agent.CheckToken(ctx, c)
	switch {
	case err == nil:
		return ok("the gateway accepts the tunnel token")
	case agent.Refused(err):
		reason, fix := agent.Explain(err)
		return bad(fix, "%s", reason)
	case errors.Is(err, link.ErrPin):
		return skipped("this server is not the gateway that created the token")
	case errors.As(err, new(link.Deny)):
		return warned("try again in a moment", "the gateway cannot check the token now: %s", agent.Reason(err))
	}
	return skipped("failed to ask the gateway: " + agent.Reason(err))
}

// reachEdges connects to each edge of the cluster over QUIC, without a hello: the connector needs a tunnel to each.
func (d *diagnosis) reachEdges(ctx context.Context) Finding {
	if !d.answersUDP() {
		return skipped("tunnels over WebSockets go through the gateway's balancer")
	}
	var problems []string
	for _, e := range d.edges {
		if err := d.reach(ctx, e.Server); err != nil {
			problems = append(problems, fmt.Sprintf("%s at %s: %s", e.Name, e.Server, agent.Reason(err)))
		}
	}
	if len(problems) > 0 {
		return bad("let this machine reach these addresses by UDP, or correct `edge advertise` there; requests that come "+
			"to these edges cannot reach this connector", "%s", strings.Join(problems, "; "))
	}
	return ok("each of %d gateways of the cluster answers over QUIC", len(d.edges))
}

// reach connects to a gateway over QUIC, without a hello.
func (d *diagnosis) reach(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, d.dialTimeout)
	defer cancel()
	target := d.target
	target.Server = server
	conn, err := dial.NewQUIC(target).Dial(ctx)
	if err != nil {
		return err
	}
	return conn.Close(link.CloseNone, "")
}
