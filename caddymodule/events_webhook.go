package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap/zapcore"
)

func init() {
	caddy.RegisterModule(new(Webhook))
}

const (
	// webhookTimeout bounds one try, to the end of the answer.
	webhookTimeout = 10 * time.Second

	// webhookBuffer is how many events may wait to be posted.
	webhookBuffer = 1024

	// webhookGrace is how long what waits may take after the configuration has
	// ended, and webhookExitGrace when the process is about to exit.
	webhookGrace     = time.Minute
	webhookExitGrace = 5 * time.Second
)

// webhookPauses are those before the second and the third try.
var webhookPauses = [...]time.Duration{time.Second, 5 * time.Second}

// Webhook posts the gateway's events to a URL, as CloudEvents 1.0 in JSON. It
// does so one by one and in the background, so that nobody waits for the
// receiver; each gets three tries of ten seconds. Answers other than 2xx are
// failures; redirects are not followed. Events of other modules are left alone.
type Webhook struct {
	// Where to post to. Placeholders such as `{env.WEBHOOK_URL}` are replaced
	// when the configuration is loaded.
	URL string `json:"url,omitempty"`

	// Headers to send, such as `Authorization`. A secret belongs into a
	// placeholder, `Bearer {env.WEBHOOK_TOKEN}` or `{file./run/secrets/token}`:
	// the configuration can be read through Caddy's admin endpoint.
	Headers map[string]string `json:"headers,omitempty"`

	// The secret with which posts are signed, as Standard Webhooks has it: at
	// least 16 bytes, or `whsec_` and base64. It belongs into a placeholder, too.
	// Default: posts are not signed.
	Secret string `json:"secret,omitempty"`

	logger *slog.Logger
	target *url.URL
	key    []byte // nil: nothing is signed
	header http.Header
	client *http.Client
	lost   *losses
	life   context.Context // ends a while after the configuration
	end    context.CancelFunc

	mu      sync.Mutex
	waiting []delivery
	idle    chan struct{} // closed when nothing waits any more; nil: nothing does
}

// delivery is an event to be posted.
type delivery struct {
	name, id string
	body     []byte
}

// CaddyModule returns the module's registration.
func (*Webhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "events.handlers.model_gateway_webhook",
		New: func() caddy.Module { return new(Webhook) },
	}
}

// Provision replaces placeholders and checks what comes of them.
func (w *Webhook) Provision(ctx caddy.Context) error {
	w.logger = ctx.Slogger()
	if err := w.resolve(caddy.NewReplacer()); err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1
	w.client = &http.Client{
		Transport: transport, Timeout: webhookTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	w.lost = newLosses(func(n int) {
		w.logger.Error("events were lost: the webhook is too slow", "host", w.target.Host, "lost", n, "buffer", webhookBuffer)
	})
	w.life, w.end = context.WithCancel(context.Background())
	return nil
}

// resolve sets target, header and key. No error names a value: it may be secret.
func (w *Webhook) resolve(repl *caddy.Replacer) error {
	text, err := repl.ReplaceOrErr(w.URL, true, true)
	if err != nil {
		return fmt.Errorf("reading the webhook's url: %w", err)
	}
	w.target, err = url.Parse(strings.TrimSpace(text))
	if err != nil || w.target.Host == "" || w.target.Scheme != "http" && w.target.Scheme != "https" {
		return errors.New("the webhook's url must be one such as https://hooks.example.com/postern")
	}
	w.header = http.Header{"Content-Type": {"application/cloudevents+json"}, "User-Agent": {"Postern"}}
	for name, value := range w.Headers {
		value, err := repl.ReplaceOrErr(value, true, true)
		if err != nil {
			return fmt.Errorf("reading the webhook's header %s: %w", name, err)
		}
		value = strings.TrimSpace(value) // files end with a line feed
		if name == "" || strings.ContainsFunc(name, notHeaderName) || strings.ContainsFunc(value, isControl) {
			return fmt.Errorf("the webhook's header %q: it is not a name of letters, digits and hyphens with a value of one line", name)
		}
		w.header.Set(name, value)
	}
	w.key, err = signingKey(w.Secret, repl)
	return err
}

func notHeaderName(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '-' && r != '_'
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// Handle implements caddyevents.Handler.
func (w *Webhook) Handle(_ context.Context, e caddy.Event) error {
	if e.Origin() == nil || e.Origin().CaddyModule().ID != new(App).CaddyModule().ID {
		return nil
	}
	return w.take(e)
}

// take has an event posted. It returns at once.
func (w *Webhook) take(e caddy.Event) error {
	body, err := json.Marshal(e.CloudEvent())
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) >= webhookBuffer {
		observeEventsLost(lostByWebhook, 1)
		w.lost.add()
		return nil
	}
	w.waiting = append(w.waiting, delivery{e.Name(), e.ID().String(), body})
	if w.idle == nil {
		w.idle = make(chan struct{})
		go w.post(w.idle)
	}
	return nil
}

// post posts what waits, until nothing does or life ends.
func (w *Webhook) post(idle chan struct{}) {
	defer close(idle)
	for {
		w.mu.Lock()
		if n := len(w.waiting); n == 0 || w.life.Err() != nil {
			w.waiting, w.idle = nil, nil
			w.mu.Unlock()
			if n > 0 {
				observeEventsLost(lostAtEnd, n)
				w.logger.Error("events were lost: they still waited for the webhook a while after the end of its configuration",
					"host", w.target.Host, "lost", n)
			}
			return
		}
		next := w.waiting[0]
		w.waiting = w.waiting[1:]
		w.mu.Unlock()
		log := w.logger.With("event", next.name, "event_id", next.id, "host", w.target.Host)
		if tries, err := w.deliver(next); err != nil {
			observeEventsLost(lostRefused, 1)
			log.Error("posting an event to the webhook", "tries", tries, "error", err)
		} else {
			log.Debug("posted an event to the webhook", "tries", tries)
		}
	}
}

// deliver tries to post one event.
func (w *Webhook) deliver(d delivery) (tries int, err error) {
	for {
		again, err := w.try(d)
		if err == nil || !again || tries == len(webhookPauses) {
			return tries + 1, err
		}
		select {
		case <-time.After(webhookPauses[tries]):
			tries++
		case <-w.life.Done():
			return tries + 1, fmt.Errorf("%w (the configuration has ended: no further try)", err)
		}
	}
}

// try posts one event once. again says whether another try may help.
func (w *Webhook) try(d delivery) (again bool, err error) {
	req, err := http.NewRequestWithContext(w.life, http.MethodPost, w.target.String(), bytes.NewReader(d.body))
	if err != nil {
		return false, withoutURL(err)
	}
	req.Header = w.header.Clone()
	if w.key != nil {
		sign(req.Header, w.key, d, time.Now())
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return w.life.Err() == nil, withoutURL(err)
	}
	defer resp.Body.Close()
	// To its end, within reason: the connection can then be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	switch code := resp.StatusCode; {
	case code/100 == 2:
		return false, nil
	case code/100 == 3:
		return false, fmt.Errorf("the receiver answered %d: redirects are not followed, name the final url", code)
	default:
		return code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout, fmt.Errorf("the receiver answered %d", code)
	}
}

// withoutURL is the error without the URL, which may hold a secret.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// Cleanup lets what waits be posted, but not for long. A reload does not wait
// for that; the end of the process does, a moment.
func (w *Webhook) Cleanup() error {
	if w.end == nil {
		return nil
	}
	w.mu.Lock()
	idle := w.idle
	w.mu.Unlock()
	switch {
	case idle == nil:
		w.finish()
	case caddy.Exiting():
		select {
		case <-idle:
		case <-time.After(webhookExitGrace):
		}
		w.finish()
	default:
		time.AfterFunc(webhookGrace, w.finish)
	}
	return nil
}

// finish ends all posting.
func (w *Webhook) finish() {
	w.end()
	w.lost.close()
	w.client.CloseIdleConnections()
}

// MarshalLogObject implements zapcore.ObjectMarshaler: the events app logs its
// handlers, and a url or a header may hold a secret in clear.
func (w *Webhook) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	if w.target != nil {
		enc.AddString("host", w.target.Host)
	}
	return nil
}

// UnmarshalCaddyfile reads
//
//	model_gateway_webhook <url> {
//		header <name> <value>
//		secret <secret>
//	}
func (w *Webhook) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.AllArgs(&w.URL) {
		return d.Err("model_gateway_webhook takes a url: model_gateway_webhook https://hooks.example.com/postern")
	}
	for d.NextBlock(0) {
		if d.Val() == "secret" {
			if w.Secret != "" || !d.AllArgs(&w.Secret) {
				return d.Err("secret takes one secret, once: secret {env.WEBHOOK_SECRET}")
			}
			continue
		}
		if d.Val() != "header" {
			return d.Errf("unrecognized option %q; expected header or secret", d.Val())
		}
		var name, value string
		if !d.AllArgs(&name, &value) {
			return d.Err("header takes a name and a value: header Authorization \"Bearer {env.WEBHOOK_TOKEN}\"")
		}
		if w.Headers == nil {
			w.Headers = make(map[string]string)
		}
		w.Headers[name] = value
	}
	return nil
}

// Interface guards.
var (
	_ caddy.Provisioner       = (*Webhook)(nil)
	_ caddy.CleanerUpper      = (*Webhook)(nil)
	_ caddyevents.Handler     = (*Webhook)(nil)
	_ caddyfile.Unmarshaler   = (*Webhook)(nil)
	_ zapcore.ObjectMarshaler = (*Webhook)(nil)
)
