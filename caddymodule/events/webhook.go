package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/connector/logs"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	// webhookTimeout bounds one attempt, including the response body.
	webhookTimeout = 10 * time.Second

	// webhookBuffer is the number of events that may wait to be posted. If it is reached, the account with the most
	// waiting events loses one: the newest of its kind of record with the most.
	webhookBuffer = 1024

	// webhookPatience bounds the wait that a receiver can ask for.
	webhookPatience = 5 * time.Minute

	// webhookGrace is how long queued events may still be posted after the
	// configuration has ended, and webhookExitGrace when the process exits.
	webhookGrace     = time.Minute
	webhookExitGrace = 5 * time.Second
)

// webhookPauses are the pauses before the second and the third attempt.
var webhookPauses = [...]time.Duration{time.Second, 5 * time.Second}

// WebhookOptions configure a webhook.
type WebhookOptions struct {
	URL    *url.URL
	Header http.Header // in addition to those of a post, or instead of them
	Key    []byte      // signs the posts; nil: not signed
	Logger *slog.Logger
	Lost   func(reason string, n int) // counts lost events
}

// Webhook posts events one by one in the background, with up to three attempts
// each. Accounts take turns, and inside an account, kinds of records, so that many events
// of keys neither delay nor displace those of connectors or of other accounts. Events of
// one kind are posted in order. Logs and errors never include the URL or a header, which
// may be secret.
type Webhook struct {
	WebhookOptions
	client *http.Client
	lost   logs.Sampler[string]
	life   context.Context // canceled some time after the configuration has ended
	end    context.CancelFunc
	done   chan struct{} // closed when run returns
	wake   chan struct{} // receives an item after changes of the fields below

	mu      sync.Mutex
	waiting fair.Turns[string, *message] // by account and kind of record
	closed  bool
}

// message is an event to post.
type message struct {
	account, name, id string
	Payload
}

// path returns the account and the kind of record that an event is about: "key" of model_gateway.key_changed.
func (m *message) path() []string {
	kind, _, _ := strings.Cut(m.name[strings.LastIndex(m.name, ".")+1:], "_")
	return []string{m.account, kind}
}

// NewWebhook returns a webhook, which must be closed.
func NewWebhook(o WebhookOptions) *Webhook {
	w := &Webhook{WebhookOptions: o, client: &http.Client{
		Transport: &http.Transport{ // another module may have replaced http.DefaultTransport
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
		},
		Timeout:       webhookTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	w.life, w.end = context.WithCancel(context.Background())
	go w.run()
	return w
}

// Post queues an event of an account without blocking. If the buffer is full, it or another event is lost.
func (w *Webhook) Post(account, name, id string, p Payload) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		w.Lost(LostAtEnd, 1)
		return
	}
	m := &message{account, name, id, p}
	if w.waiting.Len() >= webhookBuffer {
		w.Lost(LostByWebhook, 1)
		w.lost.Log(w.Logger, slog.LevelError, LostByWebhook, time.Now(), "failed to queue an event: the webhook is too slow",
			"host", w.URL.Host, "buffer", webhookBuffer)
		newest, ok := w.waiting.Longest(m.path())
		if !ok {
			return
		}
		w.waiting.Remove(newest.path(), newest)
	}
	w.waiting.Push(m.path(), m)
	wait.Wake(w.wake, struct{}{})
}

// next waits for the next event. It returns false if the webhook is closed and the queue is empty.
func (w *Webhook) next() (*message, bool) {
	for {
		w.mu.Lock()
		waits, closed := w.waiting.Len() > 0, w.closed
		var m *message
		if waits {
			m = w.waiting.Pop()
		}
		w.mu.Unlock()
		if waits || closed {
			return m, waits
		}
		<-w.wake
	}
}

// run posts events until the webhook is closed and the queue is empty. Events left
// when life ends are lost.
func (w *Webhook) run() {
	defer close(w.done)
	late := 0
	for m, ok := w.next(); ok; m, ok = w.next() {
		if w.life.Err() != nil {
			late++
			continue
		}
		log := w.Logger.With("event", m.name, "event_id", m.id, "host", w.URL.Host)
		attempts := 0
		err := panics.Do(w.Logger, "posting an event", func() (err error) {
			attempts, err = w.send(m)
			return err
		})
		if err != nil {
			w.Lost(LostRefused, 1)
			log.Error("failed to post an event to the webhook", "attempts", attempts, "error", err)
		} else {
			log.Debug("posted an event to the webhook", "attempts", attempts)
		}
	}
	if late > 0 {
		w.Lost(LostAtEnd, late)
		w.Logger.Error("failed to post events in time after the webhook's configuration ended",
			"host", w.URL.Host, "lost", late)
	}
	w.end()
	w.client.CloseIdleConnections()
}

// Try makes one attempt to post an event, at once.
func (w *Webhook) Try(ctx context.Context, name, id string, p Payload) error {
	_, err := w.attempt(ctx, &message{name: name, id: id, Payload: p})
	return err
}

// send posts one event, with retries.
func (w *Webhook) send(m *message) (attempts int, err error) {
	for {
		pause, err := w.attempt(w.life, m)
		if err == nil || pause < 0 || attempts == len(webhookPauses) {
			return attempts + 1, err
		}
		select {
		case <-time.After(max(pause, webhookPauses[attempts])):
			attempts++
		case <-w.life.Done():
			return attempts + 1, fmt.Errorf("%w (not retried: the configuration has ended)", err)
		}
	}
}

// attempt makes one attempt to post an event. After an error, pause is how long the receiver wants no other attempt, or
// negative if another one cannot succeed.
func (w *Webhook) attempt(ctx context.Context, m *message) (pause time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL.String(), bytes.NewReader(m.Body))
	if err != nil {
		return -1, withoutURL(err)
	}
	maps.Copy(req.Header, m.Header)
	maps.Copy(req.Header, w.Header)
	if w.Key != nil {
		sign(req.Header, w.Key, *m, time.Now())
	}
	resp, err := w.client.Do(req)
	if err != nil && ctx.Err() != nil {
		return -1, withoutURL(err)
	} else if err != nil {
		return 0, withoutURL(err)
	}
	defer resp.Body.Close()
	// Read the body within reason, so that the connection can be reused.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	switch code := resp.StatusCode; {
	case code/100 == 2:
		return 0, nil
	case code/100 == 3:
		return -1, fmt.Errorf("the receiver responded with %d: redirects are not followed; configure the final URL", code)
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		return retryAfter(resp.Header, body), fmt.Errorf("the receiver responded with %d", code)
	case code >= 500, code == http.StatusRequestTimeout:
		return 0, fmt.Errorf("the receiver responded with %d", code)
	default:
		return -1, fmt.Errorf("the receiver responded with %d", code)
	}
}

// retryAfter returns how long a receiver wants no other attempt, at most webhookPatience. Discord writes it with
// fractions into the body.
func retryAfter(h http.Header, body []byte) time.Duration {
	var answer struct {
		RetryAfter float64 `json:"retry_after"`
	}
	_ = json.Unmarshal(body, &answer) // other receivers send other bodies
	seconds := answer.RetryAfter
	if after, err := strconv.ParseFloat(h.Get("Retry-After"), 64); err == nil {
		seconds = max(seconds, after)
	} else if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		seconds = max(seconds, time.Until(at).Seconds())
	}
	if seconds > 0 { // not if it is not a number
		return time.Duration(math.Ceil(1000*min(seconds, webhookPatience.Seconds()))) * time.Millisecond
	}
	return 0
}

// withoutURL returns err without the URL, which may contain a secret.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// Close stops accepting events and posts the queued ones for a limited time. It
// waits for them only if the process is exiting, not on a reload.
func (w *Webhook) Close(exiting bool) {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	wait.Wake(w.wake, struct{}{})
	grace := webhookGrace
	if exiting {
		grace = webhookExitGrace
	}
	timer := time.AfterFunc(grace, w.end)
	if exiting {
		<-w.done
		timer.Stop()
	}
}
