package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/postern-dev/postern/tests/command"
)

// An admin is the address of an endpoint that has Go's profiling pages: Caddy's
// admin endpoint, or the one of a process with many connectors.
type admin string

// adminClient keeps no connections: an idle one would be two goroutines more.
var adminClient = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// A statusError is an answer of the admin endpoint other than 2xx.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %.300s", e.status, e.text) }

// call sends a request and returns the answer's body.
func (a admin) call(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+string(a)+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := adminClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer to %s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %w", method, path, &statusError{resp.StatusCode, string(answer)})
	}
	return answer, nil
}

// manage calls the gateway's management API and decodes the answer into what is
// not nil. A reload replaces Caddy's admin endpoint, which loses connections
// that are just being made: what changes something is tried again then. All of
// it may be done twice.
func (a admin) manage(ctx context.Context, method, path string, body, into any) error {
	payload, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding a request: %w", err)
	}
	if body == nil {
		payload = nil
	}
	answer, err := a.call(ctx, method, "/model_gateway"+path, "application/json", payload)
	var status *statusError
	for tries := 1; err != nil && method != http.MethodGet && tries < 3 && !errors.As(err, &status) && command.Pause(ctx, 200*time.Millisecond) == nil; tries++ {
		answer, err = a.call(ctx, method, "/model_gateway"+path, "application/json", payload)
	}
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s %s: decoding the answer: %w", method, path, err)
	}
	return nil
}

// listed is a connector as the gateway lists it.
type listed struct{ ID, Name, State, Transport string }

// connectors lists them.
func (a admin) connectors(ctx context.Context) (list []listed, err error) {
	err = a.manage(ctx, http.MethodGet, "/connectors", nil, &list)
	return list, err
}

// online counts the connectors that are.
func (a admin) online(ctx context.Context) (int, error) {
	var status struct {
		Connectors struct{ Online int } `json:"connectors"`
	}
	err := a.manage(ctx, http.MethodGet, "/status", nil, &status)
	return status.Connectors.Online, err
}

// goroutines returns how many there are.
func (a admin) goroutines(ctx context.Context) (int, error) {
	page, err := a.call(ctx, http.MethodGet, "/debug/pprof/goroutine?debug=1", "", nil)
	if err != nil {
		return 0, err
	}
	return number(page, `(?m)^goroutine profile: total (\d+)`)
}

// heap returns the bytes of the objects in the heap after a collection.
func (a admin) heap(ctx context.Context) (int, error) {
	page, err := a.call(ctx, http.MethodGet, "/debug/pprof/heap?debug=1&gc=1", "", nil)
	if err != nil {
		return 0, err
	}
	return number(page, `(?m)^# HeapAlloc = (\d+)`)
}

// number returns the first group of the pattern in the page.
func number(page []byte, pattern string) (int, error) {
	m := regexp.MustCompile(pattern).FindSubmatch(page)
	if m == nil {
		return 0, fmt.Errorf("a page has no line like %s", pattern)
	}
	return strconv.Atoi(string(m[1]))
}

// inflight sums what the gateway says of requests that run.
func (a admin) inflight(ctx context.Context) (int, error) {
	page, err := a.call(ctx, http.MethodGet, "/metrics", "", nil)
	if err != nil {
		return 0, err
	}
	sum := 0
	for _, m := range regexp.MustCompile(`(?m)^postern_inflight_requests\{[^}]*\} (\d+)`).FindAllSubmatch(page, -1) {
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			return 0, fmt.Errorf("reading a metric: %w", err)
		}
		sum += n
	}
	return sum, nil
}
