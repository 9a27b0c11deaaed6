package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/postern-dev/postern/tests/command"
)

// hangLimit is how long an answer may take: the longest is done in far less,
// and what the gateway or a connector bounds is bounded by less.
const hangLimit = 150 * time.Second

// How long clients do not read. The gateway cuts one after 60 s.
const (
	pauseTime = 5 * time.Second
	deafTime  = 80 * time.Second
)

// clients send requests.
type clients struct {
	url               string
	kept, fresh, slow *http.Client
	release           <-chan struct{} // ends the patience of deaf clients
}

func newClients(url string, release <-chan struct{}) *clients {
	small := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(32 << 10) // a hint
		}
		return conn, err
	}
	return &clients{
		url: url, release: release,
		kept:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
		fresh: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		slow:  &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: small}},
	}
}

// Ways in which a client ends an answer itself.
var (
	errLeft     = errors.New("the client has left")
	errReleased = errors.New("the client was let go at the end of the run")
)

// send sends a request, reads the answer, and says how it went.
func (c *clients) send(ctx context.Context, r *request) outcome {
	ctx, cancel := context.WithTimeoutCause(ctx, hangLimit, errHung)
	defer cancel()
	if r.habit == leaves && !r.streamed {
		patience := r.First + time.Duration(r.Tokens)*r.Pace*time.Duration(r.leave)/100
		timer := time.AfterFunc(patience, cancel)
		defer timer.Stop()
	}
	o := outcome{request: r, began: time.Now()}
	err := c.exchange(ctx, &o)
	o.ended = time.Now()
	switch cause := context.Cause(ctx); {
	case errors.Is(err, errLeft), errors.Is(err, errReleased), err != nil && r.habit == leaves && errors.Is(cause, context.Canceled):
		o.symptom, o.detail = left, ""
	case err != nil && errors.Is(cause, errHung):
		o.symptom, o.detail = hung, fmt.Sprintf("no end after %v", hangLimit)
	case err != nil:
		o.detail = err.Error()
	}
	return o
}

var errHung = errors.New("the request took too long")

// exchange is send without the clock. It sets the symptom of its error.
func (c *clients) exchange(ctx context.Context, o *outcome) error {
	reused := false
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, c.url+o.dialect.path(), bytes.NewReader(o.body()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+o.key.secret)
	resp, err := c.choose(o.request).Do(req)
	if err != nil {
		o.symptom = refused
		if reused {
			o.symptom = stale
		}
		return err
	}
	defer resp.Body.Close()
	o.status, o.requestID = resp.StatusCode, requestID(resp.Header)
	if resp.StatusCode != http.StatusOK {
		t := readError(resp.Body)
		o.symptom = symptomOf(resp.StatusCode, t)
		return t
	}
	o.symptom = severed
	a, err := c.read(ctx, o.request, resp.Body)
	switch {
	case errors.Is(err, errWrong):
		o.symptom = wrong
		return err
	case err != nil:
		return fmt.Errorf("after %d events: %w", a.events, err)
	case a.told != nil:
		o.symptom = symptomOf(http.StatusOK, a.told)
		return fmt.Errorf("after %d events: %w", a.events, a.told)
	case !a.finished:
		return fmt.Errorf("after %d events the stream ended as if it were whole", a.events)
	}
	if err := a.verify(o.Script); err != nil {
		o.symptom = wrong
		return err
	}
	o.symptom = well
	return nil
}

func requestID(h http.Header) string {
	if id := h.Get("X-Request-Id"); id != "" {
		return id
	}
	return h.Get("Request-Id") // of the messages dialect
}

func (c *clients) choose(r *request) *http.Client {
	switch {
	case r.habit == deaf || r.habit == pauses:
		return c.slow
	case r.fresh:
		return c.fresh
	}
	return c.kept
}

// read reads an answer by the client's habit.
func (c *clients) read(ctx context.Context, r *request, body io.Reader) (answer, error) {
	if !r.streamed {
		return readWhole(body)
	}
	return readStream(body, func(events int) error {
		switch {
		case r.habit == leaves && events >= r.leave:
			return errLeft
		case r.habit == pauses && events == 10:
			return command.Pause(ctx, pauseTime)
		case r.habit == deaf && events == 10:
			select {
			case <-c.release:
				return errReleased
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(deafTime):
			}
		}
		return nil
	})
}
