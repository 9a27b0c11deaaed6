package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"
)

// An Admin is the address of an endpoint that has Go's profiling pages: Caddy's
// admin endpoint, or the one of a profiled connector.
type Admin string

// adminClient keeps no connections: an idle one would be two goroutines more.
var adminClient = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// A StatusError is an answer with a status other than 2xx.
type StatusError struct {
	Status int
	Text   string
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %.300s", e.Status, e.Text) }

// Call sends a request, with a JSON body unless it is nil, and returns the
// answer's body.
func (a Admin) Call(ctx context.Context, method, path string, body any) ([]byte, error) {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encoding a request: %w", err)
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+string(a)+path, payload)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
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
		return nil, fmt.Errorf("%s %s: %w", method, path, &StatusError{resp.StatusCode, string(answer)})
	}
	return answer, nil
}

// Manage calls the gateway's management API and decodes the answer into what is
// not nil.
func (a Admin) Manage(ctx context.Context, method, path string, body, into any) error {
	answer, err := a.Call(ctx, method, "/model_gateway"+path, body)
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s %s: decoding the answer: %w", method, path, err)
	}
	return nil
}

// A Listed is a connector as the gateway lists it.
type Listed struct {
	ID, Name, State, Transport, Since string

	NotAt []NotAt `json:"not_at"`
}

// NotAt is an edge of a cluster without a tunnel of a connector.
type NotAt struct {
	Edge, Since, Reason string
}

// ExpectOnline returns an error unless n connectors are online.
func (a Admin) ExpectOnline(ctx context.Context, n int) error {
	var status struct {
		Connectors struct{ Online int } `json:"connectors"`
	}
	err := a.Manage(ctx, http.MethodGet, "/status", nil, &status)
	if got := status.Connectors.Online; err == nil && got != n {
		err = fmt.Errorf("%d of %d connectors are online", got, n)
	}
	return err
}

// Metrics returns what Caddy's /metrics shows.
func (a Admin) Metrics(ctx context.Context) (string, error) {
	page, err := a.Call(ctx, http.MethodGet, "/metrics", nil)
	return string(page), err
}

// Goroutines returns how many there are.
func (a Admin) Goroutines(ctx context.Context) (int, error) {
	page, err := a.Call(ctx, http.MethodGet, "/debug/pprof/goroutine?debug=1", nil)
	if err != nil {
		return 0, err
	}
	n, err := number(page, `(?m)^goroutine profile: total (\d+)`)
	return int(n), err
}

// A Heap is the Go runtime's account of a process.
type Heap struct {
	Live   int64 // bytes of objects in the heap
	Stacks int64 // bytes of stacks
}

// Heap runs the garbage collector and reads the account.
func (a Admin) Heap(ctx context.Context) (Heap, error) {
	page, err := a.Call(ctx, http.MethodGet, "/debug/pprof/heap?debug=1&gc=1", nil)
	if err != nil {
		return Heap{}, err
	}
	return parseHeap(page)
}

// parseHeap reads the end of the page: the fields of runtime.MemStats.
func parseHeap(page []byte) (Heap, error) {
	var h Heap
	for pattern, to := range map[string]*int64{
		`(?m)^# HeapAlloc = (\d+)`: &h.Live,
		`(?m)^# Stack = (\d+)`:     &h.Stacks,
	} {
		var err error
		if *to, err = number(page, pattern); err != nil {
			return Heap{}, err
		}
	}
	return h, nil
}

// number returns the first group of the pattern in the page.
func number(page []byte, pattern string) (int64, error) {
	m := regexp.MustCompile(pattern).FindSubmatch(page)
	if m == nil {
		return 0, fmt.Errorf("a profiling page has no line like %s", pattern)
	}
	return strconv.ParseInt(string(m[1]), 10, 64)
}

// Save stores a profiling page in a file.
func (a Admin) Save(ctx context.Context, page, path string) error {
	b, err := a.Call(ctx, http.MethodGet, "/debug/pprof/"+page, nil)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("saving a profile: %w", err)
	}
	return nil
}
