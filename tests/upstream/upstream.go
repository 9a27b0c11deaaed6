// Package upstream is package modelserver for tests: it knows what it received.
// A request is answered by the Handler of the model it names.
package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/freeport"
	"github.com/postern-dev/postern/tests/rig/modelserver"
)

// A Handler answers one request.
type Handler = modelserver.Handler

// An Exchange is a request being answered.
type Exchange = modelserver.Exchange

// A Request is what the server received, kept for assertions.
type Request = modelserver.Request

// A Server is a running scripted upstream.
type Server struct {
	URL string // http://127.0.0.1:port, without /v1

	mu       sync.Mutex
	handlers map[string]Handler // by model; "" answers the others
	requests []Request
	running  int
	gone     map[string][]time.Time // when clients were noticed to have left running requests, by model
}

// Start starts a server that ends with the test. It keeps the port that it has
// found: a port that was closed may be busy, in a process that is being started.
func Start(t testing.TB) *Server {
	t.Helper()
	l, err := freeport.Listen()
	return start(t, l, err)
}

// StartAt starts a server on a given address, as for a server that comes back.
func StartAt(t testing.TB, addr string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	return start(t, l, err)
}

func start(t testing.TB, l net.Listener, err error) *Server {
	t.Helper()
	if err != nil {
		t.Fatalf("starting the scripted upstream: %v", err)
	}
	s := &Server{URL: "http://" + l.Addr().String(), handlers: map[string]Handler{}, gone: map[string][]time.Time{}}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	go func() { _ = modelserver.Serve(ctx, l, s.answer) }() // ends with ctx
	return s
}

// modelList is what a connector asks for by itself.
const modelList = "GET /v1/models"

// Handle sets what answers requests for a model; "" answers all others but those
// of the connector for the list of models, which "GET /v1/models" answers.
func (s *Server) Handle(model string, h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[model] = h
}

// Requests returns everything received so far, in order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Last returns the newest request.
func (s *Server) Last(t testing.TB) Request {
	t.Helper()
	all := s.Requests()
	if len(all) == 0 {
		t.Fatal("the upstream has received nothing")
	}
	return all[len(all)-1]
}

// Running returns how many requests are being answered.
func (s *Server) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// Gone returns when running requests for a model were left by their client.
func (s *Server) Gone(model string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.gone[model])
}

// WaitRunning waits until n requests are being answered.
func (s *Server) WaitRunning(t testing.TB, n int) {
	t.Helper()
	harness.Poll(t, harness.Patience, fmt.Sprintf("having %d running requests at the upstream", n),
		func(context.Context) error {
			if got := s.Running(); got != n {
				return fmt.Errorf("there are %d", got)
			}
			return nil
		})
}

// answer runs the handler of a request.
func (s *Server) answer(x *Exchange) {
	var named struct {
		Model string `json:"model"`
	}
	object := x.Request.Body
	// decoding all of it takes seconds with the race detector
	if at := bytes.LastIndex(object, []byte(`"model":`)); at > 1<<20 {
		object = append([]byte("{"), object[at:]...)
	}
	_ = json.Unmarshal(object, &named) // without valid JSON there is no model
	x.Request.Model = named.Model
	own := x.Request.Method+" "+x.Request.Target == modelList // no request of a client
	s.mu.Lock()
	h := s.handlers[named.Model]
	if own {
		h = s.handlers[modelList]
	} else {
		if h == nil {
			h = s.handlers[""]
		}
		s.requests = append(s.requests, x.Request)
		s.running++
	}
	s.mu.Unlock()
	if h == nil {
		h = Answer(http.StatusNotFound, "text/plain", "the scripted upstream has no script for model "+named.Model)
	}
	x.Watch()
	h(x)
	if own {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if at := x.LeftAt(); at != nil {
		s.gone[named.Model] = append(s.gone[named.Model], *at)
	}
}
