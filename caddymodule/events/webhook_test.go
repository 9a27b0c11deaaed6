package events

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// answers is a receiver with a list of answers: statuses, or 0 for no answer.
type answers struct {
	statuses []int
	takes    time.Duration

	mu       sync.Mutex
	requests []*http.Request
	received []time.Time
}

// times are those of the requests.
func (a *answers) times() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.received)
}

// RoundTrip implements http.RoundTripper.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.requests, a.received = append(a.requests, r), append(a.received, time.Now())
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
	return &http.Response{
		StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader("what it says")),
		Request: r,
	}, nil
}

// newWebhook returns a webhook to a receiver, and the count of its losses.
func newWebhook(receiver http.RoundTripper, log io.Writer) (*Webhook, *atomic.Int64) {
	lost := new(atomic.Int64)
	w := NewWebhook(WebhookOptions{
		URL:    &url.URL{Scheme: "https", Host: "hooks.example.com", Path: "/path-secret"},
		Header: http.Header{"Authorization": {"Bearer header-secret"}},
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Lost:   func(_ string, n int) { lost.Add(int64(n)) },
	})
	w.client.Transport = receiver
	return w, lost
}

// Some failures are retried. No log ever contains the URL or a header.
func TestWebhookTries(t *testing.T) {
	for name, c := range map[string]struct {
		statuses []int
		attempts int
		log      string
	}{
		"taken":       {[]int{200}, 1, "posted an event"},
		"second try":  {[]int{503, 204}, 2, "posted an event"},
		"third try":   {[]int{0, 429, 204}, 3, "posted an event"},
		"given up":    {[]int{500, 0, 500, 204}, 3, "the receiver responded with 500"},
		"unreachable": {[]int{0, 0, 0, 204}, 3, "connection refused"},
		"refused":     {[]int{403, 204}, 1, "the receiver responded with 403"},
		"redirect":    {[]int{307, 204}, 1, "redirects are not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				receiver := &answers{statuses: c.statuses}
				w, _ := newWebhook(receiver, &log)
				w.Post("default", "model_gateway.key_created", "1", Payload{Body: []byte("{}")})
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(receiver.requests) != c.attempts || !strings.Contains(log.String(), c.log) {
					t.Errorf("%d attempts, want %d; log %s", len(receiver.requests), c.attempts, log.String())
				}
				if strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "hooks.example.com") {
					t.Errorf("the log is %s", log.String())
				}
				for i, r := range receiver.requests {
					if r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer header-secret" ||
						r.URL.Path != "/path-secret" {
						t.Errorf("request %v", r)
					}
					if i > 0 && receiver.received[i].Sub(receiver.received[i-1]) != webhookPauses[i-1] {
						t.Errorf("try %d came after %v", i, receiver.received[i].Sub(receiver.received[i-1]))
					}
				}
				w.Close(false)
			})
		})
	}
}

// A receiver that hangs costs ten seconds for each attempt, and blocks nothing: surplus events are lost.
// After the end of the configuration, the rest is lost, too.
func TestWebhookHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		receiver := &answers{takes: time.Hour}
		w, lost := newWebhook(receiver, &log)
		began := time.Now()
		for range webhookBuffer + 10 {
			w.Post("default", "model_gateway.key_created", "1", Payload{Body: []byte("{}")})
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("taking events waited for %v", d)
		}
		time.Sleep(3*webhookTimeout + 10*time.Second)
		synctest.Wait()
		if times := receiver.times(); len(times) != 4 || times[1].Sub(times[0]) != webhookTimeout+webhookPauses[0] {
			t.Errorf("attempts at %v", times)
		}
		w.Close(false)
		if d := time.Since(began); d != 3*webhookTimeout+10*time.Second {
			t.Errorf("the end of the configuration waited, %v", d)
		}
		time.Sleep(webhookGrace)
		synctest.Wait()
		select {
		case <-w.done:
		default:
			t.Error("a minute after the end events are still posted")
		}
		if n := lost.Load(); n != webhookBuffer+10 {
			t.Errorf("%v are counted of %d events that were not delivered", n, webhookBuffer+10)
		}
		if strings.Count(log.String(), "failed to queue an event: the webhook is too slow") != 1 ||
			strings.Count(log.String(), "failed to post events in time") != 1 {
			t.Errorf("the log is %s", log.String())
		}
	})
}

// Many events of one kind of record of an account neither displace nor delay those of another kind or account, and the
// events of a connector stay in order.
func TestWebhookTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		receiver := &answers{takes: 50 * time.Millisecond}
		w, lost := newWebhook(receiver, io.Discard)
		const flood = 3 * webhookBuffer
		for i := range flood {
			w.Post("default", "model_gateway.key_changed", "1", Payload{Body: []byte("{}")})
			if i == flood/2 {
				w.Post("default", "model_gateway.connector_offline", "2", Payload{Body: []byte("offline")})
				w.Post("default", "model_gateway.connector_online", "3", Payload{Body: []byte("online")})
				w.Post("other", "model_gateway.key_revoked", "4", Payload{Body: []byte("revoked")})
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		var order []string
		receiver.mu.Lock()
		for _, r := range receiver.requests {
			if body, err := io.ReadAll(r.Body); err != nil {
				t.Error(err)
			} else if string(body) != "{}" {
				order = append(order, string(body))
			}
		}
		receiver.mu.Unlock()
		if !slices.Equal(order, []string{"revoked", "offline", "online"}) {
			t.Errorf("within a second: %q", order)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		sent := len(receiver.times())
		if n := int(lost.Load()); n+sent != flood+3 || sent < webhookBuffer {
			t.Errorf("%d events are sent and %d lost, of %d", sent, n, flood+3)
		}
		w.Close(false)
	})
}
