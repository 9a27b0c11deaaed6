// Package doctor checks everything that a connector needs, and says how to fix it.
package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
)

// Result says how a check went.
type Result string

// The results of a check.
const (
	ResultOK      Result = "ok"
	ResultWarning Result = "warning" // works, or is not needed now
	ResultFailed  Result = "failed"
	ResultSkipped Result = "skipped" // another one has to work first
)

// Finding is what one check has found.
type Finding struct {
	Check    string        `json:"check"`
	Result   Result        `json:"result"`
	Detail   string        `json:"detail"`
	Fix      string        `json:"fix,omitempty"`
	Duration time.Duration `json:"duration_ns"`
}

const (
	// diagnoseTimeout is enough for a handshake that loses packets.
	diagnoseTimeout = 5 * time.Second
	// maxSkew is how wrong a clock may be: certificates that were just made must
	// be valid already.
	maxSkew = time.Minute
)

// diagnosis checks, one after the other, what a configuration needs.
type diagnosis struct {
	config config.Config
	token  link.Token
	target dial.Target
	client *http.Client
	now    func() time.Time
	report func(Finding)

	dialTimeout  time.Duration
	probeTimeout time.Duration
	udp          bool // answers
	date         time.Time
}

// Diagnose checks all that a valid configuration needs to work: the name of the
// gateway, the ways to it, its identity, whether it accepts the token, the clock,
// and each upstream, which gets a short request to its first model. It reports
// each finding at once. A connector that runs stays undisturbed.
func Run(ctx context.Context, c config.Config, probeTimeout time.Duration, report func(Finding)) error {
	if err := c.Validate(); err != nil {
		return err
	}
	token, err := link.ParseToken(c.TunnelToken)
	if err != nil {
		return fmt.Errorf("tunnel_token: %w", err)
	}
	d := &diagnosis{
		config: c, token: token, client: dial.HTTPClient(), now: time.Now, report: report,
		target:      dial.Target{Server: cmp.Or(c.Server, token.Server), URL: token.URL, Pin: token.Pin, Preauth: link.Preauth(token), Logger: slog.New(slog.DiscardHandler)},
		dialTimeout: diagnoseTimeout, probeTimeout: probeTimeout,
	}
	d.run(ctx)
	return ctx.Err()
}

func (d *diagnosis) run(ctx context.Context) {
	if d.check(ctx, "dns", d.dns) {
		d.path(ctx)
	} else {
		for _, name := range []string{"udp", "pin", "websocket", "token"} {
			d.report(Finding{Check: name, Result: ResultSkipped, Detail: "the gateway's address is not known"})
		}
	}
	d.check(ctx, "clock", d.clock)
	d.upstreams(ctx)
}

// check makes one check, reports its finding, and returns whether it did not fail.
func (d *diagnosis) check(ctx context.Context, name string, f func(context.Context) Finding) bool {
	if ctx.Err() != nil {
		return false
	}
	start := time.Now()
	finding := f(ctx)
	if ctx.Err() != nil {
		return false // what it found may be the interruption
	}
	finding.Check, finding.Duration = name, time.Since(start)
	finding.Detail = text.Short(finding.Detail)
	d.report(finding)
	return finding.Result == ResultOK || finding.Result == ResultWarning
}

func (d *diagnosis) dns(ctx context.Context) Finding {
	host, _, _ := net.SplitHostPort(d.target.Server)
	ctx, cancel := context.WithTimeout(ctx, dial.HTTPTimeout)
	defer cancel()
	addresses, err := dial.Resolve(ctx, d.target.Server)
	if err != nil || len(addresses) == 0 {
		return Finding{
			Result: ResultFailed, Detail: fmt.Sprintf("%s has no address: %v", host, err),
			Fix: "check the spelling of the gateway's name, and that this machine has a DNS server that answers: nslookup " + host,
		}
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return Finding{Result: ResultOK, Detail: host + " is an address, and no name"}
	}
	text := make([]string, len(addresses))
	for i, a := range addresses {
		text[i] = a.Addr().String()
	}
	return Finding{Result: ResultOK, Detail: host + " is " + strings.Join(text, ", ")}
}

// path checks the two ways to the gateway, and who answers.
func (d *diagnosis) path(ctx context.Context) {
	var dialled error
	d.check(ctx, "udp", func(ctx context.Context) Finding {
		dialled = d.handshake(ctx)
		return d.judgeUDP(dialled)
	})
	d.check(ctx, "pin", func(context.Context) Finding { return d.judgePin(dialled) })
	web := d.check(ctx, "websocket", d.webSocket) && d.config.Transport != config.TransportQUIC
	if !d.udp && !web {
		d.report(Finding{Check: "token", Result: ResultSkipped, Detail: "there is no way to the gateway to ask about it"})
		return
	}
	d.check(ctx, "token", d.askToken)
}

// handshake connects over QUIC, and leaves before a hello.
func (d *diagnosis) handshake(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.dialTimeout)
	defer cancel()
	conn, err := dial.NewQUIC(d.target).Dial(ctx, nil)
	if err == nil {
		err = conn.Close(link.CloseNone, "")
	}
	return err
}

func (d *diagnosis) judgeUDP(err error) Finding {
	_, port, _ := net.SplitHostPort(d.target.Server)
	switch {
	case err == nil, errors.Is(err, link.ErrPin):
		d.udp = true
		return Finding{Result: ResultOK, Detail: "a gateway answers over QUIC at " + d.target.Server}
	default:
		return Finding{
			Result: ResultFailed, Detail: fmt.Sprintf("no answer over QUIC at %s: %s", d.target.Server, explain(err)),
			Fix: "check that the gateway runs, and that UDP port " + port + " is open in its firewall and in that of this network (outgoing)",
		}
	}
}

func (d *diagnosis) judgePin(err error) Finding {
	switch {
	case err == nil:
		return Finding{Result: ResultOK, Detail: "the gateway is the one that the tunnel token was made for"}
	case errors.Is(err, link.ErrPin):
		return Finding{
			Result: ResultFailed, Detail: "who answers at " + d.target.Server + " is not the gateway that the tunnel token was made for",
			Fix: "check `server`; if the gateway lost its storage, pair again or create a new token with `caddy gateway connector create`",
		}
	default:
		return Finding{Result: ResultSkipped, Detail: "without an answer over QUIC it is not known"}
	}
}

// webSocket asks for the tunnel's path as no WebSocket would, which a gateway
// answers with 426.
func (d *diagnosis) webSocket(ctx context.Context) Finding {
	if d.config.Transport == config.TransportQUIC {
		return Finding{Result: ResultSkipped, Detail: `the configuration has "transport": "quic"`}
	}
	// Where QUIC works, this is a spare wheel.
	result := ResultFailed
	if d.udp {
		result = ResultWarning
	}
	url := dial.NewWebSocket(d.target).Address
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Finding{Result: result, Detail: "there is no address for it: " + err.Error(), Fix: "check `server`"}
	}
	response, untrusted, err := d.ask(request)
	if err != nil {
		return Finding{
			Result: result, Detail: "no WebSocket, which is the way where UDP is blocked: " + dial.ExplainHTTPS(ctx, request.URL, err).Error(),
			Fix: "let the gateway serve HTTPS at " + strings.TrimSuffix(url, link.WebSocketPath) + ", and let this machine reach it (HTTPS_PROXY names a proxy)",
		}
	}
	response.Body.Close()
	d.date, _ = http.ParseTime(response.Header.Get("Date"))
	switch {
	case response.StatusCode == http.StatusUpgradeRequired && untrusted != nil:
		return Finding{
			Result: ResultWarning, Detail: fmt.Sprintf("the gateway takes tunnels at %s, but its certificate cannot be verified (%v); the tunnel inside is protected by the pin all the same", url, untrusted),
			Fix: dial.CertificateFix(untrusted, d.now()),
		}
	case response.StatusCode == http.StatusUpgradeRequired:
		return Finding{Result: ResultOK, Detail: "the gateway takes tunnels at " + url}
	case link.HasMediaType(response.Header, "text/html"):
		return Finding{
			Result: result, Detail: fmt.Sprintf("%s answers with a web page (status %d): a login page of the network, or no gateway", url, response.StatusCode),
			Fix: "open a page in a browser on this machine and sign in to the network, or check that this host is the gateway",
		}
	default:
		return Finding{
			Result: result, Detail: fmt.Sprintf("%s answers with status %d, not as a gateway that takes tunnels there", url, response.StatusCode),
			Fix: "check that this host is the gateway, that its version can do this, and that its site passes on " + link.WebSocketPath,
		}
	}
}

// ask asks, and once more of a server whose certificate cannot be verified, as a
// connector does: what counts to it is the pin inside.
func (d *diagnosis) ask(request *http.Request) (response *http.Response, untrusted, err error) {
	response, err = d.client.Do(request)
	var unverified *tls.CertificateVerificationError
	if !errors.As(err, &unverified) {
		return response, nil, err
	}
	transport := d.client.Transport.(*http.Transport).Clone()
	if transport.TLSClientConfig == nil {
		transport.TLSClientConfig = &tls.Config{}
	}
	transport.TLSClientConfig.InsecureSkipVerify = true
	client := *d.client
	client.Transport = transport
	if response, err = client.Do(request); err != nil {
		return nil, nil, err
	}
	return response, unverified.Err, nil
}

func (d *diagnosis) clock(context.Context) Finding {
	if d.date.IsZero() {
		return Finding{Result: ResultSkipped, Detail: "without an answer over HTTPS there is no time to compare with"}
	}
	skew := d.now().Sub(d.date).Round(time.Second)
	if skew.Abs() <= maxSkew {
		return Finding{Result: ResultOK, Detail: fmt.Sprintf("within %v of the gateway's", max(skew.Abs(), time.Second))}
	}
	way := "ahead of"
	if skew < 0 {
		way = "behind"
	}
	return Finding{
		Result: ResultFailed,
		Detail: fmt.Sprintf("this machine's clock is %s %s the gateway's: it says %s, the gateway says %s",
			span(skew.Abs()), way, d.now().UTC().Format(time.RFC3339), d.date.UTC().Format(time.RFC3339)),
		Fix: "let it be set from the network, on Linux with: sudo timedatectl set-ntp true; if this one is right, do so on the gateway",
	}
}

// span is a duration as people say it.
func span(d time.Duration) string {
	const day, year = 24 * time.Hour, (365*24 + 6) * time.Hour
	switch {
	case d >= 2*year:
		return fmt.Sprintf("%d years", d.Round(year)/year)
	case d >= 2*day:
		return fmt.Sprintf("%d days", d/day)
	default:
		return d.String()
	}
}
