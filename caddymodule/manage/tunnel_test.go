package manage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/caught"
)

// fakeTunnel is a tunnel to handlers, by upstream.
type fakeTunnel struct {
	t         *testing.T
	info      tunnel.Info
	upstreams map[string]http.Handler
	requests  atomic.Int64
	err       error // of all requests, unless nil
}

func newFakeTunnel(t *testing.T, con store.Connector, upstreams map[string]http.Handler) *fakeTunnel {
	f := &fakeTunnel{
		t: t, upstreams: upstreams,
		info: tunnel.Info{
			Connector: con.ID, Account: con.Account, Name: con.Name, Session: "session of " + con.ID,
			Upstreams: slices.Sorted(maps.Keys(upstreams)),
		},
	}
	for _, name := range f.info.Upstreams {
		f.info.States = append(f.info.States, tunnel.UpstreamState{Name: name})
	}
	return f
}

// errCrash makes requests panic.
var errCrash = errors.New("crash")

// report sets the reported state of an upstream.
func (f *fakeTunnels) report(connector, upstream string, server health.Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.infos {
		if f.infos[i].Connector != connector {
			continue
		}
		states := slices.Clone(f.infos[i].States)
		for j := range states {
			if states[j].Name == upstream {
				states[j].Server = server
			}
		}
		f.infos[i].States = states
	}
}

// Resolve resolves like a connector without routes.
func (f *fakeTunnel) Resolve(public, upstream, model string) (string, string, error) {
	if upstream == "" {
		if len(f.info.Upstreams) != 1 {
			return "", "", fmt.Errorf("%w: connector %q has several upstreams", tunnel.ErrNoRoute, f.info.Name)
		}
		upstream = f.info.Upstreams[0]
	}
	if model == "" {
		model = public
	}
	return upstream, model, nil
}

// RoundTrip serves a request like a real tunnel, and fails the test if a real tunnel
// would refuse it.
func (f *fakeTunnel) RoundTrip(r *http.Request) (*http.Response, error) {
	f.requests.Add(1)
	ctx := r.Context()
	if f.err == errCrash {
		panic(caught.Secret)
	}
	if f.err != nil {
		return nil, f.err
	}
	handler := f.upstreams[r.Host]
	if handler == nil || link.CheckUpstream(r.Host) != nil {
		return nil, link.ErrRefused
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || int64(len(body)) != r.ContentLength || !strings.HasPrefix(r.URL.Path, "/v1/") {
		f.t.Errorf("%s %s has %d bytes, says %d (%v)", r.Method, r.URL, len(body), r.ContentLength, err)
	}
	_ = r.Body.Close()

	inner := r.Clone(ctx)
	inner.Body = io.NopCloser(strings.NewReader(string(body)))
	reader, writer := io.Pipe()
	w := &pipeWriter{header: make(http.Header), body: writer, begun: make(chan int, 1)}
	stop := context.AfterFunc(ctx, func() { _ = reader.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer stop()
		defer func() {
			if v := recover(); v != nil { // an abort
				w.broken = v.(error)
				w.once.Do(func() { close(w.begun) })
				_ = writer.CloseWithError(w.broken)
			}
		}()
		handler.ServeHTTP(w, inner)
		w.WriteHeader(http.StatusOK)
		_ = writer.Close()
	}()
	select {
	case status, ok := <-w.begun:
		if !ok {
			return nil, w.broken
		}
		return &http.Response{StatusCode: status, Header: w.header, Body: reader, ContentLength: -1, Request: r}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pipeWriter forwards an answer while it is written.
type pipeWriter struct {
	header http.Header
	body   *io.PipeWriter
	begun  chan int // takes the status; closed: broken
	once   sync.Once
	broken error
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() { w.begun <- status })
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }

var errBroken = fmt.Errorf("in the answer: %w", link.ErrUpstreamReset)

// abort breaks off an answer.
func abort() { panic(errBroken) }

// answer is a handler that answers everything with a body.
func answer(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// hang is a handler that never answers.
func hang(_ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	panic(errors.New("hung up"))
}

// models is a handler that lists models.
func models(ids ...string) http.HandlerFunc {
	list := []map[string]string{}
	for _, id := range ids {
		list = append(list, map[string]string{"id": id, "object": "model"})
	}
	body, err := json.Marshal(map[string]any{"object": "list", "data": list})
	if err != nil {
		panic(err)
	}
	return answer(200, "application/json", string(body))
}
