package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// webhookTimeout bounds one try, to the end of the answer.
	webhookTimeout = 10 * time.Second

	// webhookBuffer is how many events may wait to be posted.
	webhookBuffer = 1024

	// webhookGrace is how long waiting events may take after the configuration
	// has ended, and webhookExitGrace when the process is about to exit.
	webhookGrace     = time.Minute
	webhookExitGrace = 5 * time.Second
)

// webhookPauses are those before the second and the third try.
var webhookPauses = [...]time.Duration{time.Second, 5 * time.Second}

// WebhookOptions are where and how a webhook posts.
type WebhookOptions struct {
	URL    *url.URL
	Header http.Header
	Key    []byte // signs the posts; nil: they are not signed
	Logger *slog.Logger
	Lost   func(reason string, n int) // counts lost events
}

// Webhook posts events one by one and in the background; each gets three tries.
// No log and no error of it holds the URL or a header, which may be secret.
type Webhook struct {
	WebhookOptions
	client *http.Client
	losses *losses
	life   context.Context // ends a while after the configuration
	end    context.CancelFunc

	mu      sync.Mutex
	waiting []delivery
	idle    chan struct{} // closed when nothing waits any longer; nil: nothing does
}

// delivery is an event to be posted.
type delivery struct {
	name, id string
	body     []byte
}

// NewWebhook returns a webhook, which must be closed.
func NewWebhook(o WebhookOptions) *Webhook {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1
	w := &Webhook{WebhookOptions: o, client: &http.Client{
		Transport: transport, Timeout: webhookTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	w.losses = &losses{report: func(n int) {
		w.Logger.Error("events were lost: the webhook is too slow", "host", w.URL.Host, "lost", n, "buffer", webhookBuffer)
	}}
	w.life, w.end = context.WithCancel(context.Background())
	return w
}

// Post queues an event. It returns at once: an event beyond the buffer is lost.
func (w *Webhook) Post(name, id string, body []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) >= webhookBuffer {
		w.Lost(LostByWebhook, 1)
		w.losses.add()
		return
	}
	w.waiting = append(w.waiting, delivery{name, id, body})
	if w.idle == nil {
		w.idle = make(chan struct{})
		go w.run(w.idle)
	}
}

// run posts the waiting events, until there are none or life ends.
func (w *Webhook) run(idle chan struct{}) {
	defer close(idle)
	for {
		w.mu.Lock()
		if n := len(w.waiting); n == 0 || w.life.Err() != nil {
			w.waiting, w.idle = nil, nil
			w.mu.Unlock()
			if n > 0 {
				w.Lost(LostAtEnd, n)
				w.Logger.Error("events were lost: they still waited for the webhook a while after the end of its configuration",
					"host", w.URL.Host, "lost", n)
			}
			return
		}
		next := w.waiting[0]
		w.waiting = w.waiting[1:]
		w.mu.Unlock()
		log := w.Logger.With("event", next.name, "event_id", next.id, "host", w.URL.Host)
		if tries, err := w.deliver(next); err != nil {
			w.Lost(LostRefused, 1)
			log.Error("failed to post an event to the webhook", "tries", tries, "error", err)
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
	req, err := http.NewRequestWithContext(w.life, http.MethodPost, w.URL.String(), bytes.NewReader(d.body))
	if err != nil {
		return false, withoutURL(err)
	}
	req.Header = w.Header.Clone()
	if w.Key != nil {
		sign(req.Header, w.Key, d, time.Now())
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

// Close lets the waiting events be posted, but not for long. A reload does not
// wait for that; a process that exits waits a moment.
func (w *Webhook) Close(exiting bool) {
	w.mu.Lock()
	idle := w.idle
	w.mu.Unlock()
	switch {
	case idle == nil:
		w.finish()
	case exiting:
		select {
		case <-idle:
		case <-time.After(webhookExitGrace):
		}
		w.finish()
	default:
		time.AfterFunc(webhookGrace, w.finish)
	}
}

// finish ends all posting.
func (w *Webhook) finish() {
	w.end()
	w.losses.flush()
	w.client.CloseIdleConnections()
}
