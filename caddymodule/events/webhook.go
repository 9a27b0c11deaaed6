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
	done   chan struct{} // closed when nothing is posted any longer

	mu      sync.Mutex // held while queueing
	waiting chan delivery
	closed  bool // so is waiting
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
	}, waiting: make(chan delivery, webhookBuffer), done: make(chan struct{})}
	w.losses = &losses{report: func(n int) {
		w.Logger.Error("events were lost: the webhook is too slow", "host", w.URL.Host, "lost", n, "buffer", webhookBuffer)
	}}
	w.life, w.end = context.WithCancel(context.Background())
	go w.run()
	return w
}

// Post queues an event. It returns at once: an event beyond the buffer is lost.
func (w *Webhook) Post(name, id string, body []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		w.Lost(LostAtEnd, 1)
		return
	}
	select {
	case w.waiting <- delivery{name, id, body}:
	default:
		w.Lost(LostByWebhook, 1)
		w.losses.add()
	}
}

// run posts the events until the webhook is closed and none waits. After the end
// of life they are lost.
func (w *Webhook) run() {
	defer close(w.done)
	late := 0
	for d := range w.waiting {
		if w.life.Err() != nil {
			late++
			continue
		}
		log := w.Logger.With("event", d.name, "event_id", d.id, "host", w.URL.Host)
		if tries, err := w.deliver(d); err != nil {
			w.Lost(LostRefused, 1)
			log.Error("failed to post an event to the webhook", "tries", tries, "error", err)
		} else {
			log.Debug("posted an event to the webhook", "tries", tries)
		}
	}
	if late > 0 {
		w.Lost(LostAtEnd, late)
		w.Logger.Error("events were lost: they still waited for the webhook a while after the end of its configuration",
			"host", w.URL.Host, "lost", late)
	}
	w.end()
	w.losses.flush()
	w.client.CloseIdleConnections()
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
	w.closed = true
	close(w.waiting)
	w.mu.Unlock()
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
