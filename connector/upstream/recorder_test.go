package upstream

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

var quiet = slog.New(slog.DiscardHandler)

// recorder is the tunnel's end of an answer: it records the writes and the end.
type recorder struct {
	header  http.Header
	status  int
	writes  []string
	aborted *link.Failure
	flushed int
	onFlush func()
	onWrite func() // called by each Write, before it returns
	stopped atomic.Int32
	onStop  func() // called by StopReading
}

func (w *recorder) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

func (w *recorder) WriteHeader(status int) { w.status = status }

func (w *recorder) Write(b []byte) (int, error) {
	w.writes = append(w.writes, string(b))
	if w.onWrite != nil {
		w.onWrite()
	}
	return len(b), nil
}

func (w *recorder) Flush() {
	w.flushed++
	if w.onFlush != nil {
		w.onFlush()
	}
}

func (w *recorder) Abort(f *link.Failure) { w.aborted = f }

func (w *recorder) StopReading() {
	w.stopped.Add(1)
	if w.onStop != nil {
		w.onStop()
	}
}

func (w *recorder) body() string { return strings.Join(w.writes, "") }

// proxyTo returns a proxy with one upstream, "box", at address.
func proxyTo(t *testing.T, address string, key *keyFile) *Proxy {
	t.Helper()
	return NewProxy(Set{"box": newServer("box", baseURL(address), key)}, Options{Logger: quiet, Prober: NewProber(quiet)})
}

// baseURL returns the API root of the server at a URL without a path.
func baseURL(address string) *url.URL {
	base, err := url.Parse(address + "/v1")
	if err != nil {
		panic(err)
	}
	return base
}

// tunnelRequest returns a request as it leaves the tunnel.
func tunnelRequest(ctx context.Context, method, target, body string) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target +
		" HTTP/1.1\r\nHost: box\r\n\r\n")))
	if err != nil {
		panic(err)
	}
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return r.WithContext(ctx)
}

func serveBox(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}
