package caddymodule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap/zapcore"
	"golang.org/x/net/http/httpguts"

	"github.com/postern-dev/postern/caddymodule/events"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/metrics"
	"github.com/postern-dev/postern/caddymodule/options"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Webhook posts the gateway's events to a URL as CloudEvents 1.0 in JSON, or alerts
// and their ends to a chat service. It posts them one by one in the background, with up
// to three attempts of ten seconds each. Any status other than 2xx is a failure, and
// redirects are not followed. Events of other modules are ignored.
type Webhook struct {
	// The URL to post to. Placeholders such as `{env.WEBHOOK_URL}` are replaced
	// when the configuration is loaded.
	URL string `json:"url,omitempty"`

	// Headers to send, such as `Authorization`. Use placeholders for secrets,
	// such as `Bearer {env.WEBHOOK_TOKEN}` or `{file./run/secrets/token}`: the
	// configuration can be read through Caddy's admin endpoint.
	Headers map[string]string `json:"headers,omitempty"`

	// The secret that signs posts as specified by Standard Webhooks: at least 16
	// bytes, or `whsec_` and base64. Use a placeholder here, too.
	// Default: posts are not signed.
	Secret string `json:"secret,omitempty"`

	// What is posted: `cloudevents`, or for people `slack`, `discord`, `ntfy` or
	// `text`. These get only alerts, and when they are over. Default: `cloudevents`.
	Format string `json:"format,omitempty"`

	webhook *events.Webhook
}

// CaddyModule returns the module's registration.
func (*Webhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.model_gateway_webhook", New: func() caddy.Module { return new(Webhook) }}
}

// Provision replaces placeholders and checks the result.
func (w *Webhook) Provision(ctx caddy.Context) error {
	w.Format = cmp.Or(w.Format, events.FormatCloudEvents)
	if !slices.Contains(events.Formats, w.Format) {
		return fmt.Errorf("webhook format %q is not one of %s", w.Format, strings.Join(events.Formats, ", "))
	}
	o, err := w.resolve(caddy.NewReplacer())
	if err != nil {
		return err
	}
	o.Logger, o.Lost = ctx.Slogger(), metrics.CountLostEvents
	w.webhook = events.NewWebhook(o)
	return nil
}

// resolve resolves URL, headers and secret. Errors never include a value, which
// may be secret.
func (w *Webhook) resolve(repl *caddy.Replacer) (o events.WebhookOptions, err error) {
	read := func(what, value string) string { // files end with a line feed
		text, e := repl.ReplaceOrErr(value, true, true)
		if e != nil && err == nil {
			err = fmt.Errorf("reading the webhook's %s: %w", what, e)
		}
		return strings.TrimSpace(text)
	}
	target, secret := read("url", w.URL), read("secret", w.Secret)
	o.Header = http.Header{"User-Agent": {"Postern"}}
	for name, value := range w.Headers {
		value = read("header "+name, value)
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return o, fmt.Errorf("invalid webhook header %q: the name may have letters, digits and hyphens, and the value "+
				"must be a single line", name)
		}
		o.Header.Set(name, value)
	}
	if err != nil {
		return o, err
	}
	o.URL, err = url.Parse(target)
	if err != nil || o.URL.Host == "" || o.URL.Scheme != "http" && o.URL.Scheme != "https" {
		return o, errors.New("invalid webhook url: expected a url such as https://hooks.example.com/postern")
	}
	if w.Secret != "" {
		o.Key, err = events.SigningKey(secret)
	}
	return o, err
}

// emission is what handlers learn about an event from the context, in addition to its data.
type emission struct {
	alert   events.Alert
	console string // the URL of the console, or ""
}

type emissionKey struct{}

// withEmission returns a context for handlers of an event.
func withEmission(ctx caddy.Context, e emission) caddy.Context {
	ctx.Context = context.WithValue(ctx.Context, emissionKey{}, e)
	return ctx
}

// eventPrefix begins the names of the gateway's events.
const eventPrefix = "model_gateway."

// Handle implements caddyevents.Handler.
func (w *Webhook) Handle(ctx context.Context, e caddy.Event) error {
	if e.Origin() == nil || e.Origin().CaddyModule().ID != new(App).CaddyModule().ID {
		return nil
	}
	meaning, _ := ctx.Value(emissionKey{}).(emission)
	id, p, err := w.payload(e, meaning)
	if err != nil || p.Body == nil {
		return err
	}
	account, _ := e.Data["account"].(string)
	w.webhook.Post(account, e.Name(), id, p)
	return nil
}

// payload returns what to post about an event, without a body if it is not for the format, and its id.
func (w *Webhook) payload(e caddy.Event, meaning emission) (id string, p events.Payload, err error) {
	id, ok := e.Data["id"].(string) // of a cluster
	if !ok {
		id = e.ID().String()
	}
	if w.Format != events.FormatCloudEvents {
		event := events.Event{Name: strings.TrimPrefix(e.Name(), eventPrefix), Data: e.Data, Alert: meaning.alert}
		return id, events.Render(w.Format, event, meaning.console), nil
	}
	p.Header = http.Header{"Content-Type": {"application/cloudevents+json"}}
	if p.Body, err = json.Marshal(e.CloudEvent()); err != nil {
		return id, p, fmt.Errorf("encoding an event: %w", err)
	}
	return id, p, nil
}

// webhooks returns the webhooks of the configuration. Some may be used for several events.
func (a *App) webhooks() (list []manage.Webhook) {
	known := make(map[string]bool)
	for _, s := range a.events.Subscriptions {
		for _, h := range s.Handlers {
			w, ok := h.(*Webhook)
			if !ok || known[w.Format+" "+w.webhook.URL.String()] {
				continue
			}
			known[w.Format+" "+w.webhook.URL.String()] = true
			list = append(list, manage.Webhook{
				Host: w.webhook.URL.Host, Format: w.Format, Test: func(ctx context.Context) error { return a.test(ctx, w) },
			})
		}
	}
	return list
}

// test posts a test to a webhook.
func (a *App) test(ctx context.Context, w *Webhook) error {
	e, err := caddy.NewEvent(a.ctx, eventPrefix+events.EventTest, map[string]any{"account": store.DefaultAccount})
	if err != nil {
		return fmt.Errorf("creating an event: %w", err)
	}
	id, p, err := w.payload(e, emission{events.AlertBegins, a.addresses.sites().console.page()})
	if err != nil {
		return err
	}
	return w.webhook.Try(ctx, e.Name(), id, p)
}

// Cleanup posts the queued events for a limited time.
func (w *Webhook) Cleanup() error {
	if w.webhook != nil {
		w.webhook.Close(caddy.Exiting())
	}
	return nil
}

// MarshalLogObject implements zapcore.ObjectMarshaler. The events app logs its
// handlers, and a URL or a header may hold a secret in clear text.
func (w *Webhook) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	if w.webhook != nil {
		enc.AddString("host", w.webhook.URL.Host)
	}
	return nil
}

// UnmarshalCaddyfile reads
//
//	model_gateway_webhook <url> {
//		header <name> <value>
//		secret <secret>
//		format cloudevents|slack|discord|ntfy|text
//	}
func (w *Webhook) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.AllArgs(&w.URL) {
		return d.Err("model_gateway_webhook takes a url: model_gateway_webhook https://hooks.example.com/postern")
	}
	w.Headers = make(map[string]string)
	return options.List{
		{Name: "header", Parse: func(d *caddyfile.Dispenser) error {
			var name, value string
			if !d.AllArgs(&name, &value) {
				return d.Err("header takes a name and a value: header Authorization \"Bearer {env.WEBHOOK_TOKEN}\"")
			}
			w.Headers[name] = value
			return nil
		}},
		{Name: "secret", Parse: func(d *caddyfile.Dispenser) error {
			if w.Secret != "" || !d.AllArgs(&w.Secret) {
				return d.Err("secret takes one secret, once: secret {env.WEBHOOK_SECRET}")
			}
			return nil
		}},
		options.Once(options.Word("format", &w.Format, events.Formats...)),
	}.UnmarshalBlock(d)
}

// Interface guards.
var (
	_ caddy.Provisioner       = (*Webhook)(nil)
	_ caddy.CleanerUpper      = (*Webhook)(nil)
	_ caddyevents.Handler     = (*Webhook)(nil)
	_ caddyfile.Unmarshaler   = (*Webhook)(nil)
	_ zapcore.ObjectMarshaler = (*Webhook)(nil)
)
