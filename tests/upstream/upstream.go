// Package upstream is a model server for tests that sends exactly the bytes it
// is told to, when it is told to, and knows what it received.
//
// It speaks HTTP/1.1 on the bare connection, because net/http would not let a
// test die before the headers, split a rune over two writes, or leave out the
// final chunk. A request is answered by the Handler of the model it names.
package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
)

// A Handler answers one request. After it returns the connection is used for
// the next request, unless it was closed.
type Handler func(x *Exchange)

// A Request is what the server received, kept for assertions.
type Request struct {
	Method string
	Target string // as in the request line
	Host   string
	Header http.Header
	Model  string // the body's "model", "" if there is none
	Body   []byte
	At     time.Time
}

// A Server is a running scripted upstream.
type Server struct {
	URL string // http://127.0.0.1:port, without /v1

	mu       sync.Mutex
	handlers map[string]Handler // by model; "" answers the others
	requests []Request
	running  int
	gone     map[string][]time.Time // when clients were noticed to have left running requests, by model
	conns    map[net.Conn]bool
	closed   bool
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartAt(t, harness.FreeAddr(t))
}

// StartAt starts a server on a given address: one that was down may come back.
func StartAt(t testing.TB, addr string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("starting the scripted upstream: %v", err)
	}
	s := &Server{URL: "http://" + addr, handlers: map[string]Handler{}, gone: map[string][]time.Time{}, conns: map[net.Conn]bool{}}
	go s.accept(l)
	t.Cleanup(func() { s.close(l) })
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
	harness.Poll(t, 10*time.Second, fmt.Sprintf("having %d running requests at the upstream", n), func(context.Context) error {
		if got := s.Running(); got != n {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

func (s *Server) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			c.Close()
		}
		s.conns[c] = true
		s.mu.Unlock()
		go s.serve(c)
	}
}

func (s *Server) close(l net.Listener) {
	l.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
}

func (s *Server) serve(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	r := bufio.NewReader(c)
	for {
		req, err := readRequest(c, r)
		if err != nil {
			return
		}
		if !s.answer(c, r, req) {
			return
		}
	}
}

// readRequest reads one whole request.
func readRequest(c net.Conn, r *bufio.Reader) (Request, error) {
	in, err := http.ReadRequest(r)
	if err != nil {
		return Request{}, err
	}
	if in.Header.Get("Expect") == "100-continue" {
		if _, err := io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return Request{}, err
		}
	}
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return Request{}, err
	}
	var named struct {
		Model string `json:"model"`
	}
	object := body
	if at := bytes.LastIndex(body, []byte(`"model":`)); at > 1<<20 { // decoding all of it takes seconds with the race detector
		object = append([]byte("{"), body[at:]...)
	}
	_ = json.Unmarshal(object, &named) // what is no JSON names no model
	return Request{
		Method: in.Method, Target: in.RequestURI, Host: in.Host, Header: in.Header,
		Model: named.Model, Body: body, At: time.Now(),
	}, nil
}

// answer runs the handler and tells whether the connection may be used again.
func (s *Server) answer(c net.Conn, r *bufio.Reader, req Request) (again bool) {
	s.mu.Lock()
	own := req.Method+" "+req.Target == modelList
	h := s.handlers[req.Model]
	switch {
	case own: // no request of a client
		h = s.handlers[modelList]
	case h == nil:
		h = s.handlers[""]
	}
	if !own {
		s.requests = append(s.requests, req)
		s.running++
	}
	s.mu.Unlock()
	if h == nil {
		h = Answer(http.StatusNotFound, "text/plain", "the scripted upstream has no script for model "+req.Model)
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	x := &Exchange{Request: req, conn: c, ctx: ctx}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if left(r) {
			s.mu.Lock()
			s.gone[req.Model] = append(s.gone[req.Model], time.Now())
			s.mu.Unlock()
			x.left.Store(true)
			cancel()
		}
	}()
	h(x)
	s.mu.Lock()
	if !own {
		s.running--
	}
	s.mu.Unlock()
	if x.dead {
		return false
	}
	// Free the watcher's read: the next request is this goroutine's to read.
	_ = c.SetReadDeadline(time.Now())
	<-watched
	_ = c.SetReadDeadline(time.Time{})
	return !x.left.Load()
}

// left waits until the client has closed its side (true) or the wait is ended
// by the deadline or by bytes of a next request (false).
func left(r *bufio.Reader) bool {
	_, err := r.Peek(1)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, net.ErrClosed) {
		return false
	}
	return err != nil
}

// Bytes returns the request as an upstream sees it, for a comparison of all of
// it: request line, Host, the headers sorted by name, an empty line, the body.
func (r Request) Bytes() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s\nHost: %s\n", r.Method, r.Target, r.Host)
	var names []string
	for name := range r.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range r.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	b.WriteByte('\n')
	b.Write(r.Body)
	return b.Bytes()
}
