package caddymodule

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyevents/eventsconfig" // the global option events
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// answers is a receiver that gives one answer after the other: a status, or 0
// for none.
type answers struct {
	statuses []int
	takes    time.Duration

	mu       sync.Mutex
	requests []*http.Request
	at       []time.Time
}

// times are those of the requests.
func (a *answers) times() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.at)
}

// RoundTrip implements http.RoundTripper.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.requests, a.at = append(a.requests, r), append(a.at, time.Now())
	a.mu.Unlock()
	select {
	case <-time.After(a.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	status := 204
	if len(a.statuses) > 0 {
		status, a.statuses = a.statuses[0], a.statuses[1:]
	}
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	header := http.Header{"Location": {"https://elsewhere.example.com/"}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader("what it says")), Request: r}, nil
}

// newWebhook is a webhook to a receiver, as a configuration would make it.
func newWebhook(t *testing.T, to http.RoundTripper, log io.Writer) *Webhook {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(cancel)
	w := &Webhook{URL: "https://hooks.example.com/path-secret", Headers: map[string]string{"authorization": "Bearer header-secret"}}
	if err := w.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	w.client.Transport = to
	w.logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return w
}

// newEvent is an event, of nobody.
func newEvent(t *testing.T) caddy.Event {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(cancel)
	e, err := caddy.NewEvent(ctx, "model_gateway.key_created", map[string]any{"key_id": "key_1"})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// What is tried again, and what is not; whatever happens, no log holds the url
// or a header.
func TestWebhookTries(t *testing.T) {
	for name, c := range map[string]struct {
		statuses []int
		tries    int
		log      string
	}{
		"taken":       {[]int{200}, 1, "posted an event"},
		"second try":  {[]int{503, 204}, 2, "posted an event"},
		"third try":   {[]int{0, 429, 204}, 3, "posted an event"},
		"given up":    {[]int{500, 0, 500, 204}, 3, "the receiver answered 500"},
		"unreachable": {[]int{0, 0, 0, 204}, 3, "connection refused"},
		"refused":     {[]int{403, 204}, 1, "the receiver answered 403"},
		"redirect":    {[]int{307, 204}, 1, "redirects are not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				to := &answers{statuses: c.statuses}
				w := newWebhook(t, to, &log)
				if err := w.take(newEvent(t)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(to.requests) != c.tries || !strings.Contains(log.String(), c.log) {
					t.Errorf("%d tries, want %d; log %s", len(to.requests), c.tries, log.String())
				}
				if strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "hooks.example.com") {
					t.Errorf("the log says %s", log.String())
				}
				for i, r := range to.requests {
					if r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer header-secret" || r.URL.Path != "/path-secret" {
						t.Errorf("request %v", r)
					}
					if i > 0 && to.at[i].Sub(to.at[i-1]) != webhookPauses[i-1] {
						t.Errorf("try %d came after %v", i, to.at[i].Sub(to.at[i-1]))
					}
				}
				_ = w.Cleanup()
			})
		})
	}
}

// A receiver that hangs costs ten seconds for each try, and holds nobody: what
// does not fit is lost. After the configuration's end it is given up.
func TestWebhookHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		to := &answers{takes: time.Hour}
		w := newWebhook(t, to, &log)
		before := lostEvents(t, lostByWebhook, lostRefused, lostAtEnd)
		began := time.Now()
		for range webhookBuffer + 10 {
			if err := w.take(newEvent(t)); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("taking events waited for %v", d)
		}
		time.Sleep(3*webhookTimeout + 10*time.Second)
		synctest.Wait()
		if at := to.times(); len(at) != 4 || at[1].Sub(at[0]) != webhookTimeout+webhookPauses[0] {
			t.Errorf("tries at %v", at)
		}
		_ = w.Cleanup()
		if d := time.Since(began); d != 3*webhookTimeout+10*time.Second {
			t.Errorf("the end of the configuration waited, %v", d)
		}
		time.Sleep(webhookGrace)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.waiting); n != 0 || w.idle != nil {
			t.Errorf("a minute after the end %d events wait", n)
		}
		if n := lostEvents(t, lostByWebhook, lostRefused, lostAtEnd) - before; n != webhookBuffer+10 {
			t.Errorf("the metrics count %v of %d events that nobody got", n, webhookBuffer+10)
		}
		if strings.Count(log.String(), "events were lost: the webhook is too slow") != 1 || strings.Count(log.String(), "events were lost: they still waited") != 1 {
			t.Errorf("the log says %s", log.String())
		}
	})
}

// Events of Caddy itself stay here.
func TestWebhookLeavesOthersAlone(t *testing.T) {
	to := &answers{}
	w := newWebhook(t, to, io.Discard)
	if err := w.Handle(t.Context(), newEvent(t)); err != nil || w.idle != nil {
		t.Errorf("an event without an origin is posted: %v", err)
	}
}

// The events app logs its handlers at debug level.
func TestWebhookInLogs(t *testing.T) {
	var log bytes.Buffer
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&log), zapcore.DebugLevel)
	zap.New(core).Debug("handler", zap.Any("handler", newWebhook(t, &answers{}, io.Discard)))
	if !strings.Contains(log.String(), `{"host":"hooks.example.com"}`) || strings.Contains(log.String(), "secret") {
		t.Errorf("logged %s", log.String())
	}
}

// Mistakes are told when the configuration is loaded, without what is secret.
func TestWebhookMistakes(t *testing.T) {
	t.Setenv("POSTERN_TEST_TWO_LINES", "secret\nsecret")
	for name, c := range map[string]struct{ file, want string }{
		"no url":      {"model_gateway_webhook", "takes a url"},
		"two urls":    {"model_gateway_webhook https://a.example https://b.example", "takes a url"},
		"option":      {"model_gateway_webhook https://a.example {\n retry 3\n}", "expected header or secret"},
		"half":        {"model_gateway_webhook https://a.example {\n header X\n}", "header takes a name and a value"},
		"scheme":      {"model_gateway_webhook ftp://secret.example", "must be one such as https://"},
		"no address":  {"model_gateway_webhook {env.POSTERN_TEST_NOT_SET}", "env.POSTERN_TEST_NOT_SET"},
		"no secret":   {"model_gateway_webhook https://a.example {\n header X {env.POSTERN_TEST_NOT_SET}\n}", "env.POSTERN_TEST_NOT_SET"},
		"two lines":   {"model_gateway_webhook https://a.example {\n header X {env.POSTERN_TEST_TWO_LINES}\n}", `header "X"`},
		"two secrets": {"model_gateway_webhook https://a.example {\n secret secret-secret-secret\n secret secret-secret-secret\n}", "secret takes one"},
		"no signing":  {"model_gateway_webhook https://a.example {\n secret {env.POSTERN_TEST_NOT_SET}\n}", "env.POSTERN_TEST_NOT_SET"},
		"short":       {"model_gateway_webhook https://a.example {\n secret 123456789012345\n}", "too short"},
		"no base64":   {"model_gateway_webhook https://a.example {\n secret whsec_%%%\n}", "not base64"},
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
