package caddymodule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap/zapcore"
	"golang.org/x/net/http/httpguts"

	"github.com/postern-dev/postern/caddymodule/events"
	"github.com/postern-dev/postern/caddymodule/metrics"
	"github.com/postern-dev/postern/caddymodule/options"
)

// Webhook posts the gateway's events to a URL as CloudEvents 1.0 in JSON. It posts
// them one by one in the background, with up to three attempts of ten seconds each.
// Any status other than 2xx is a failure, and redirects are not followed. Events of
// other modules are ignored.
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

	webhook *events.Webhook
}

// CaddyModule returns the module's registration.
func (*Webhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.model_gateway_webhook", New: func() caddy.Module { return new(Webhook) }}
}

// Provision replaces placeholders and checks the result.
func (w *Webhook) Provision(ctx caddy.Context) error {
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
	o.Header = http.Header{"Content-Type": {"application/cloudevents+json"}, "User-Agent": {"Postern"}}
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

// Handle implements caddyevents.Handler.
func (w *Webhook) Handle(_ context.Context, e caddy.Event) error {
	if e.Origin() == nil || e.Origin().CaddyModule().ID != new(App).CaddyModule().ID {
		return nil
	}
	body, err := json.Marshal(e.CloudEvent())
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	id, ok := e.Data["id"].(string) // of a cluster
	if !ok {
		id = e.ID().String()
	}
	account, _ := e.Data["account"].(string)
	w.webhook.Post(account, e.Name(), id, body)
	return nil
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
