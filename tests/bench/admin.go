package main

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

// An admin is the address of an endpoint that has Go's profiling pages: Caddy's
// admin endpoint, or the one of a profiled connector.
type admin string

// adminClient keeps no connections: an idle one would be two goroutines more.
var adminClient = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// call sends a request, with a JSON body if there is one, and returns the
// answer's body. A status other than 2xx is an error.
func (a admin) call(ctx context.Context, method, path string, body any) ([]byte, error) {
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
		return nil, fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, answer)
	}
	return answer, nil
}

// manage calls the gateway's management API and decodes the answer into what is
// not nil.
func (a admin) manage(ctx context.Context, method, path string, body, into any) error {
	answer, err := a.call(ctx, method, "/model_gateway"+path, body)
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s %s: decoding the answer: %w", method, path, err)
	}
	return nil
}

// goroutines returns how many there are.
func (a admin) goroutines(ctx context.Context) (int, error) {
	page, err := a.call(ctx, http.MethodGet, "/debug/pprof/goroutine?debug=1", nil)
	if err != nil {
		return 0, err
	}
	n, err := number(page, `(?m)^goroutine profile: total (\d+)`)
	return int(n), err
}

// heap is the Go runtime's account of a process.
type heap struct {
	Mallocs int64 // objects allocated since it started
	Bytes   int64 // bytes allocated since it started
	Live    int64 // bytes of objects in the heap
	Stacks  int64 // bytes of stacks
}

// heapOf reads the account; collect runs the garbage collector before.
func (a admin) heapOf(ctx context.Context, collect bool) (heap, error) {
	path := "/debug/pprof/heap?debug=1"
	if collect {
		path += "&gc=1"
	}
	page, err := a.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return heap{}, err
	}
	return parseHeap(page)
}

// parseHeap reads the end of the page: the fields of runtime.MemStats.
func parseHeap(page []byte) (heap, error) {
	var h heap
	for pattern, to := range map[string]*int64{
		`(?m)^# Mallocs = (\d+)`:    &h.Mallocs,
		`(?m)^# TotalAlloc = (\d+)`: &h.Bytes,
		`(?m)^# HeapAlloc = (\d+)`:  &h.Live,
		`(?m)^# Stack = (\d+)`:      &h.Stacks,
	} {
		var err error
		if *to, err = number(page, pattern); err != nil {
			return heap{}, err
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

// save stores a profiling page in a file.
func (a admin) save(ctx context.Context, page, path string) error {
	b, err := a.call(ctx, http.MethodGet, "/debug/pprof/"+page, nil)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("saving a profile: %w", err)
	}
	return nil
}
