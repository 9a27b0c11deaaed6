package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/link"
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
	// tunnelPath is where a gateway takes tunnels over WebSocket.
	tunnelPath = "/.well-known/postern/tunnel"
	// diagnoseTimeout is enough for a handshake that loses packets.
	diagnoseTimeout = 5 * time.Second
	// maxSkew is how wrong a clock may be: certificates that were just made must
	// be valid already.
	maxSkew = time.Minute
)

// diagnosis checks, one after the other, what a configuration needs.
type diagnosis struct {
	config Config
	token  link.Token
	server string
	client *http.Client
	now    func() time.Time
	tell   func(Finding)

	dialTimeout  time.Duration
	probeTimeout time.Duration
	udp          bool // answers
	date         time.Time
}

// Diagnose checks all that a valid configuration needs to work: the name of the
// gateway, the ways to it, its identity, the clock, and each upstream, which
// gets a short request to its first model. It tells each finding when it has it.
// It says no hello, so that a connector that runs stays undisturbed.
func Diagnose(ctx context.Context, c Config, probeTimeout time.Duration, tell func(Finding)) error {
	if err := c.Validate(); err != nil {
		return err
	}
	token, err := link.ParseToken(c.TunnelToken)
	if err != nil {
		return fmt.Errorf("tunnel_token: %w", err)
	}
	d := &diagnosis{
		config: c, token: token, server: token.Server, client: newDiscoveryClient(), now: time.Now, tell: tell,
		dialTimeout: diagnoseTimeout, probeTimeout: probeTimeout,
	}
	if c.Server != "" {
		d.server = c.Server
	}
	d.run(ctx)
	return ctx.Err()
}

func (d *diagnosis) run(ctx context.Context) {
	if d.check(ctx, "dns", d.dns) {
		d.path(ctx)
	} else {
		for _, name := range []string{"udp", "pin", "websocket"} {
			d.tell(Finding{Check: name, Result: ResultSkipped, Detail: "the gateway's address is not known"})
		}
	}
	d.check(ctx, "clock", d.clock)
	d.upstreams(ctx)
}

// check makes one check and tells its finding. It reports whether nothing has
// failed.
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
	finding.Detail = legible(finding.Detail)
	d.tell(finding)
	return finding.Result == ResultOK || finding.Result == ResultWarning
}

func (d *diagnosis) dns(ctx context.Context) Finding {
	host, _, _ := net.SplitHostPort(d.server)
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	addresses, err := resolve(ctx, d.server)
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
	d.check(ctx, "websocket", d.webSocket)
}

// handshake connects over QUIC, and leaves before a hello.
func (d *diagnosis) handshake(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.dialTimeout)
	defer cancel()
	conn, err := newDialer(d.server, d.token.Pin).dial(ctx)
	if err == nil {
		err = conn.Close(link.CloseNone, "")
	}
	return err
}

func (d *diagnosis) judgeUDP(err error) Finding {
	_, port, _ := net.SplitHostPort(d.server)
	switch {
	case err == nil, errors.Is(err, link.ErrPin):
		d.udp = true
		return Finding{Result: ResultOK, Detail: "a gateway answers over QUIC at " + d.server}
	default:
		return Finding{
			Result: ResultFailed, Detail: fmt.Sprintf("nobody answers over QUIC at %s: %s", d.server, reason(err)),
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
			Result: ResultFailed, Detail: "who answers at " + d.server + " is not the gateway that the tunnel token was made for",
			Fix: "check `server`; if the gateway lost its storage, pair again or create a new token with `caddy gateway connector create`",
		}
	default:
		return Finding{Result: ResultSkipped, Detail: "nobody answers over QUIC who could show it"}
	}
}

// webURL is where the gateway takes tunnels over WebSocket.
func (d *diagnosis) webURL() string {
	host, _, _ := net.SplitHostPort(d.server)
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return "https://" + host + tunnelPath
}

// webSocket asks for the tunnel's path as no WebSocket would, which a gateway
// answers with 426.
func (d *diagnosis) webSocket(ctx context.Context) Finding {
	if d.config.Transport == TransportQUIC {
		return Finding{Result: ResultSkipped, Detail: `the configuration has "transport": "quic"`}
	}
	// Where QUIC works, this is a spare wheel.
	result := ResultFailed
	if d.udp {
		result = ResultWarning
	}
	url := d.webURL()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Finding{Result: result, Detail: "there is no address for it: " + err.Error(), Fix: "check `server`"}
	}
	response, err := d.client.Do(request)
	if err != nil {
		return Finding{
			Result: result, Detail: "no WebSocket, which is the way where UDP is blocked: " + explainDiscovery(ctx, request.URL, err).Error(),
			Fix: "let the gateway serve HTTPS at " + strings.TrimSuffix(url, tunnelPath) + ", and let this machine reach it (HTTPS_PROXY names a proxy)",
		}
	}
	response.Body.Close()
	d.date, _ = http.ParseTime(response.Header.Get("Date"))
	switch {
	case response.StatusCode == http.StatusUpgradeRequired:
		return Finding{Result: ResultOK, Detail: "the gateway takes tunnels at " + url}
	case strings.HasPrefix(response.Header.Get("Content-Type"), "text/html"):
		return Finding{
			Result: result, Detail: fmt.Sprintf("%s answers with a web page (status %d): a login page of the network, or no gateway", url, response.StatusCode),
			Fix: "open a page in a browser on this machine and sign in to the network, or check that this host is the gateway",
		}
	default:
		return Finding{
			Result: result, Detail: fmt.Sprintf("%s answers with status %d, not as a gateway that takes tunnels there", url, response.StatusCode),
			Fix: "check that this host is the gateway, that its version can do this, and that its site passes on " + tunnelPath,
		}
	}
}

func (d *diagnosis) clock(context.Context) Finding {
	if d.date.IsZero() {
		return Finding{Result: ResultSkipped, Detail: "nobody answered over HTTPS to compare with"}
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
		Result: ResultFailed, Detail: fmt.Sprintf("this machine's clock is %v %s the gateway's", skew.Abs(), way),
		Fix: "let it be set from the network, on Linux with: sudo timedatectl set-ntp true",
	}
}

// upstreams checks each model server.
func (d *diagnosis) upstreams(ctx context.Context) {
	upstreams, err := d.config.open(slog.New(slog.DiscardHandler))
	if err != nil {
		d.check(ctx, "upstreams", func(context.Context) Finding {
			return Finding{Result: ResultFailed, Detail: err.Error(), Fix: "let api_key_file name a file that this user can read, with the key alone in it"}
		})
		return
	}
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		u := upstreams[name]
		var models []string
		listed := d.check(ctx, "models of "+name, func(ctx context.Context) (f Finding) {
			models, f = u.diagnoseModels(ctx)
			return f
		})
		if !listed || len(models) == 0 {
			d.check(ctx, "stream of "+name, func(context.Context) Finding {
				return Finding{Result: ResultSkipped, Detail: "there is no model to ask"}
			})
			continue
		}
		d.check(ctx, "stream of "+name, func(ctx context.Context) Finding { return u.diagnoseStream(ctx, models[0], d.probeTimeout) })
		u.idle.drop()
	}
}

func (u *upstream) diagnoseModels(ctx context.Context) ([]string, Finding) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	models, err := u.list(ctx)
	if ctx.Err() != nil {
		err = fmt.Errorf("%w within %v", os.ErrDeadlineExceeded, checkTimeout)
	}
	if err != nil {
		return nil, Finding{Result: ResultFailed, Detail: fmt.Sprintf("the model server at %s: %v", u.address, err), Fix: u.fix(err)}
	}
	if len(models) == 0 {
		return nil, Finding{Result: ResultWarning, Detail: "the model server at " + u.address + " has no models", Fix: "load a model into it"}
	}
	return models, Finding{Result: ResultOK, Detail: fmt.Sprintf("%s has %d, the first is %s", u.address, len(models), models[0])}
}

// fix says what to do about an upstream's failure.
func (u *upstream) fix(err error) string {
	var status *statusError
	switch {
	case errors.As(err, &status) && (status.code == http.StatusUnauthorized || status.code == http.StatusForbidden):
		if u.key != nil {
			return "the key in " + u.key.path + " is not the one that the server wants; replace it"
		}
		return "it asks for a key: write it into a file, and name that in api_key_file"
	case errors.As(err, &status) && status.code == http.StatusNotFound:
		return "check the address: OpenAI's API must be under /v1 there"
	case errors.As(err, &status) && status.code >= 500:
		return "see the log of the model server"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "see what the model server at " + u.address + " is busy with, and check the address"
	case errors.Is(err, errNotConnected):
		return "start the model server, or correct the address in the configuration"
	default:
		return "check that a model server with OpenAI's API is at this address"
	}
}

// statusError is an answer with a status other than 200.
type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprintf("it answers with status %d", e.code) }

// diagnoseStream asks a model for a few words, as a stream.
func (u *upstream) diagnoseStream(ctx context.Context, model string, timeout time.Duration) Finding {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	first, events, err := u.probe(limited, model)
	var status *statusError
	switch {
	case errors.Is(limited.Err(), context.DeadlineExceeded) && err != nil:
		return Finding{
			Result: ResultFailed, Detail: fmt.Sprintf("%s has not answered within %v", model, timeout),
			Fix: "it may be loading, or be too large for this machine; try again, or give it longer with --timeout",
		}
	case errors.As(err, &status) && status.code < 500 && status.code != http.StatusUnauthorized && status.code != http.StatusForbidden:
		return Finding{
			Result: ResultWarning, Detail: fmt.Sprintf("%s cannot be asked for a chat: %v", model, err),
			Fix: "nothing, if it is a model for something else, like embeddings; otherwise see the log of the model server",
		}
	case err != nil:
		return Finding{Result: ResultFailed, Detail: fmt.Sprintf("asking %s for a stream: %v", model, err), Fix: u.fix(err)}
	default:
		return Finding{Result: ResultOK, Detail: fmt.Sprintf("%s sent the first of %d events after %v", model, events, first.Sub(start).Round(time.Millisecond))}
	}
}

// maxProbeEvents is where a stream that does not end is left.
const maxProbeEvents = 200

// probe asks for a short stream, and returns when its first event came, and how
// many there were.
func (u *upstream) probe(ctx context.Context, model string) (first time.Time, events int, err error) {
	request, err := json.Marshal(map[string]any{
		"model": model, "stream": true, "max_tokens": 16,
		"messages": []map[string]string{{"role": "user", "content": "Say OK."}},
	})
	if err != nil {
		return first, 0, err
	}
	answer, err := u.ask(ctx, http.MethodPost, "/v1/chat/completions", string(request))
	if err != nil {
		return first, 0, err
	}
	defer answer.finish()
	if kind := answer.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return first, 0, fmt.Errorf("it answers with %q, not with a stream of events", cut(kind))
	}
	lines := bufio.NewScanner(answer)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue
		}
		if strings.TrimSpace(data) == "[DONE]" || events == maxProbeEvents {
			break
		}
		if events++; events == 1 {
			first = time.Now()
		}
	}
	if err := lines.Err(); err != nil {
		return first, events, fmt.Errorf("the stream broke off: %w", err)
	}
	if events == 0 {
		return first, 0, errors.New("the stream ended without an event")
	}
	return first, events, nil
}

// ask sends a request of the connector's own. Without an error the answer has
// status 200, and must be finished.
func (u *upstream) ask(ctx context.Context, method, path, text string) (*answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, nil)
	if err != nil {
		return nil, err
	}
	if text != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	u.readdress(r)
	body, err := readPayload(new(buffers), strings.NewReader(text), int64(len(text)))
	if err != nil {
		return nil, err
	}
	defer body.release()
	answer, err := u.roundTrip(r, body)
	if err != nil {
		return nil, err
	}
	if answer.status != http.StatusOK {
		answer.finish()
		return nil, &statusError{answer.status}
	}
	return answer, nil
}

// list asks the model server for the ids of its models.
func (u *upstream) list(ctx context.Context) ([]string, error) {
	answer, err := u.ask(ctx, http.MethodGet, "/v1/models", "")
	if err != nil {
		return nil, err
	}
	defer answer.finish()
	var models struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(answer, maxConfigBytes)).Decode(&models); err != nil || models.Data == nil {
		return nil, errors.New("it answers, but not with a list of models")
	}
	ids := make([]string, 0, len(models.Data))
	for _, m := range models.Data {
		if m.ID != "" {
			ids = append(ids, m.ID)
		}
	}
	return ids, nil
}
