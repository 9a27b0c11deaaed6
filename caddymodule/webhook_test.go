package caddymodule

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyevents/eventsconfig" // the global option events
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/postern-dev/postern/caddymodule/events"
)

// newWebhook returns a webhook of a configuration. It has no receiver.
func newWebhook(t *testing.T) *Webhook {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(cancel)
	w := &Webhook{
		URL:     "https://hooks.example.com/path-secret",
		Headers: map[string]string{"authorization": "Bearer header-secret"},
	}
	must(t, w.Provision(ctx))
	t.Cleanup(func() { _ = w.Cleanup() })
	return w
}

// Configured values are read with placeholders, and without the line feed at the
// end of a file.
func TestWebhookOptions(t *testing.T) {
	t.Setenv("POSTERN_TEST_SECRET", "whsec_c2l4dGVlbiBieXRlcyAhIQ==\n")
	w := &Webhook{
		URL: "https://hooks.example.com/a", Headers: map[string]string{"x-a": "{env.POSTERN_TEST_SECRET}"},
		Secret: "{env.POSTERN_TEST_SECRET}",
	}
	o, err := w.resolve(caddy.NewReplacer())
	if err != nil || string(o.Key) != "sixteen bytes !!" || o.Header.Get("X-A") != "whsec_c2l4dGVlbiBieXRlcyAhIQ==" ||
		o.URL.Host != "hooks.example.com" {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := (&Webhook{URL: "http://hooks.example.com/a"}).resolve(caddy.NewReplacer()); o.Key != nil || err != nil {
		t.Errorf("without a secret: %+v, %v", o, err)
	}
}

// newEvent returns an event without an origin.
func newEvent(t *testing.T) caddy.Event {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(cancel)
	e, err := caddy.NewEvent(ctx, "model_gateway.key_expired", map[string]any{
		"account": "default", "key_id": "key_1", "key_name": "laptop",
	})
	must(t, err)
	return e
}

// Events of Caddy itself are not posted.
func TestWebhookLeavesOthersAlone(t *testing.T) {
	if err := new(Webhook).Handle(t.Context(), newEvent(t)); err != nil {
		t.Errorf("an event without an origin: %v", err)
	}
}

// The formats for people get alerts with a link, CloudEvents all events.
func TestWebhookFormats(t *testing.T) {
	e, alert := newEvent(t), emission{events.AlertBegins, "https://gw.example.com/console/"}
	for format, want := range map[string][2]string{
		events.FormatCloudEvents: {`"type":"model_gateway.key_expired"`, `"type":"model_gateway.key_expired"`},
		events.FormatText:        {"", "The key laptop has expired.\nhttps://gw.example.com/console/keys/key_1\n"},
		events.FormatNtfy:        {"", "The key laptop has expired."},
		events.FormatSlack:       {"", "<https://gw.example.com/console/keys/key_1|Open the console>"},
		events.FormatDiscord:     {"", "<https://gw.example.com/console/keys/key_1>"},
	} {
		w := &Webhook{Format: format}
		for i, meaning := range []emission{{}, alert} {
			id, p, err := w.payload(e, meaning)
			body := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(p.Body))
			if err != nil || id != e.ID().String() || !strings.Contains(body, want[i]) || (body == "") != (want[i] == "") {
				t.Errorf("%s, %+v: %q, %v", format, meaning, body, err)
			}
		}
	}
	if err := (&Webhook{URL: "https://a.example", Format: "teams"}).Provision(caddy.Context{}); err == nil ||
		!strings.Contains(err.Error(), `"teams" is not one of`) {
		t.Errorf("an unknown format: %v", err)
	}
}

// The events app logs its handlers at debug level.
func TestWebhookInLogs(t *testing.T) {
	var log bytes.Buffer
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&log),
		zapcore.DebugLevel)
	zap.New(core).Debug("handler", zap.Any("handler", newWebhook(t)))
	if !strings.Contains(log.String(), `{"host":"hooks.example.com"}`) || strings.Contains(log.String(), "secret") {
		t.Errorf("logged %s", log.String())
	}
}

// Mistakes are reported when the configuration is loaded, without secrets.
func TestWebhookMistakes(t *testing.T) {
	t.Setenv("POSTERN_TEST_TWO_LINES", "secret\nsecret")
	for name, c := range map[string]struct{ file, want string }{
		"no url":     {"model_gateway_webhook", "takes a url"},
		"two urls":   {"model_gateway_webhook https://a.example https://b.example", "takes a url"},
		"option":     {"model_gateway_webhook https://a.example {\n retry 3\n}", "expected header, secret or format"},
		"half":       {"model_gateway_webhook https://a.example {\n header X\n}", "header takes a name and a value"},
		"scheme":     {"model_gateway_webhook ftp://secret.example", "such as https://"},
		"no address": {"model_gateway_webhook {env.POSTERN_TEST_NOT_SET}", "env.POSTERN_TEST_NOT_SET"},
		"no secret": {
			"model_gateway_webhook https://a.example {\n header X {env.POSTERN_TEST_NOT_SET}\n}",
			"env.POSTERN_TEST_NOT_SET",
		},
		"two lines": {"model_gateway_webhook https://a.example {\n header X {env.POSTERN_TEST_TWO_LINES}\n}", `header "X"`},
		"two secrets": {"model_gateway_webhook https://a.example {\n secret secret-secret-secret\n secret " +
			"secret-secret-secret\n}", "secret takes one"},
		"no signing": {
			"model_gateway_webhook https://a.example {\n secret {env.POSTERN_TEST_NOT_SET}\n}",
			"env.POSTERN_TEST_NOT_SET",
		},
		"short":     {"model_gateway_webhook https://a.example {\n secret 123456789012345\n}", "too short"},
		"no base64": {"model_gateway_webhook https://a.example {\n secret whsec_%%%\n}", "valid base64"},
		"format": {
			"model_gateway_webhook https://a.example {\n format teams\n}",
			"not one of cloudevents, slack, discord, ntfy, text",
		},
		"two formats": {"model_gateway_webhook https://a.example {\n format slack\n format text\n}", "given twice"},
		"name":        {"model_gateway_webhook https://a.example {\n header \"X Y\" z\n}", `header "X Y"`},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
			defer cancel()
			w := new(Webhook)
			err := w.UnmarshalCaddyfile(caddyfile.NewTestDispenser(c.file))
			if err == nil {
				err = w.Provision(ctx)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret\n") {
				t.Errorf("error %v, want %q", err, c.want)
			}
			_ = w.Cleanup()
		})
	}
}
