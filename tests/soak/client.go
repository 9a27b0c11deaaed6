package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"github.com/postern-dev/postern/tests/command"
)

const (
	// hangLimit is the maximum time for an answer. The longest answer takes much less, and the timeouts of the
	// gateway and the connectors are shorter.
	hangLimit = 150 * time.Second
	// Pauses of clients that stop reading. The gateway disconnects a client after 60 s.
	pauseTime = 5 * time.Second
	deafTime  = 80 * time.Second
)

// A symptom is the kind of a failure, as the client sees it.
type symptom string

const (
	well         symptom = ""
	left         symptom = "left"           // the client left, as planned
	refused      symptom = "no connection"  // nothing listened, or the connection ended before an answer
	stale        symptom = "closed between" // an idle connection was closed while the request was sent
	offline      symptom = "offline"        // 503: the connector is not connected
	broken       symptom = "broken"         // 502: the connector or model server disconnected before the answer
	cut          symptom = "cut"            // a stream that the gateway ended with an error
	severed      symptom = "severed"        // an incomplete answer without an error
	unauthorized symptom = "unauthorized"   // 401
	busy         symptom = "busy"           // 429
	failed       symptom = "failed"         // another error status
	wrong        symptom = "wrong"          // a complete answer that differs from the script
	hung         symptom = "hung"           // no end within hangLimit
)

// symptomOf classifies an error status, or an error within a stream.
func symptomOf(status int, r *refusal) symptom {
	code := cmp.Or(r.Code, r.Type)
	switch {
	case status == 401 || code == "invalid_api_key" || code == "authentication_error":
		return unauthorized
	case strings.Contains(r.Message, "is offline"): // first, because streams have another code for it
		return offline
	case status == 429 || code == "rate_limit_exceeded" || code == "rate_limit_error":
		return busy
	case status == 503 || status == 529 || code == "deployment_offline" || code == "overloaded_error":
		return offline
	case status == 502:
		return broken
	case status == 200:
		return cut
	}
	return failed
}

// clients are the HTTP clients of a run.
type clients struct {
	kept, fresh, slow *http.Client
	release           chan struct{} // when closed, deaf clients leave
}

func newClients() *clients {
	small := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(32 << 10) // a hint
		}
		return conn, err
	}
	return &clients{
		release: make(chan struct{}),
		kept:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
		fresh:   &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		slow:    &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: small}},
	}
}

// closeIdle closes the connections without a request.
func (c *clients) closeIdle() {
	for _, client := range []*http.Client{c.kept, c.fresh, c.slow} {
		client.CloseIdleConnections()
	}
}

// Ends of a request that the gateway does not cause.
var (
	errLeft = errors.New("the client left, or was stopped at the end of the run")
	errHung = errors.New("the request took too long")
)

// send sends a request, reads the answer, and returns the outcome.
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
	case err == nil:
		o.symptom = well
	case errors.Is(err, errLeft), r.habit == leaves && errors.Is(cause, context.Canceled):
		o.symptom = left
	case errors.Is(cause, errHung):
		o.symptom, o.detail = hung, fmt.Sprintf("no end after %v", hangLimit)
	default:
		o.detail = err.Error()
		if errors.Is(err, errWrong) {
			o.symptom = wrong
		}
	}
	return o
}

// exchange sends a request and reads the answer, for send. It sets the symptom for the error that it returns,
// unless that is one of the errors above.
func (c *clients) exchange(ctx context.Context, o *outcome) error {
	o.symptom = refused
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		o.symptom = map[bool]symptom{false: refused, true: stale}[info.Reused]
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost,
		o.gateway.URL+paths[o.dialect], bytes.NewReader(o.body()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+o.key.secret)
	client := c.kept
	if o.habit == deaf || o.habit == pauses {
		client = c.slow
	} else if o.fresh {
		client = c.fresh
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// The messages dialect has a header of its own.
	o.status, o.requestID = resp.StatusCode, cmp.Or(resp.Header.Get("X-Request-Id"), resp.Header.Get("Request-Id"))
	if resp.StatusCode != http.StatusOK {
		r := readRefusal(resp.Body)
		o.symptom = symptomOf(resp.StatusCode, r)
		return r
	}
	o.symptom = severed
	a, err := c.read(ctx, o.request, resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("after %d events: %w", a.events, err)
	case a.refusal != nil:
		o.symptom = symptomOf(http.StatusOK, a.refusal)
		return fmt.Errorf("after %d events: %w", a.events, a.refusal)
	case !a.finished:
		return fmt.Errorf("the stream ended without its last event, after %d events", a.events)
	}
	return a.verify(o.Script)
}

// read reads an answer by the client's habit.
func (c *clients) read(ctx context.Context, r *request, body io.Reader) (*answer, error) {
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
				return errLeft
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(deafTime):
			}
		}
		return nil
	})
}
