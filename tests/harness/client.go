package harness

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Prompt is a text of requests that no log may contain.
const Prompt = "quartz-sphinx-7731 judges my vow"

// Patience bounds steps that take a moment, on a machine that may stall for seconds.
const Patience = 2 * time.Minute

// A Client calls the public API with one key.
type Client struct {
	URL    string
	APIKey string
	HTTP   *http.Client
}

// Client returns a client with connections of its own.
func (g *Gateway) Client(t testing.TB, key string) *Client {
	t.Helper()
	transport := &http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: 64, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the gateway's own authority signed it
	}
	t.Cleanup(transport.CloseIdleConnections)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clients = append(g.clients, transport)
	return &Client{URL: g.URL, APIKey: key, HTTP: &http.Client{Transport: transport}}
}

// An Answer is a whole answer.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Err    error // of reading the body: nil after a clean end
}

// Chat returns a chat request for a model that carries the Prompt; more is
// spliced in, for example `,"stream":true`.
func Chat(model, more string) string {
	return fmt.Sprintf(`{"model":%s,"messages":[{"role":"user","content":%s}]%s}`, Quote(model), Quote(Prompt), more)
}

// Quote returns s as a JSON string.
func Quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can always be encoded
	return strings.TrimSuffix(b.String(), "\n")
}

// Request builds a request with the client's key. Headers are "Name: value".
func (c *Client) Request(ctx context.Context, t testing.TB, method, path, body string,
	headers ...string,
) *http.Request {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.APIKey)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return req
}

// Do sends a request and reads the whole answer.
func (c *Client) Do(t testing.TB, method, path, body string, headers ...string) Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	a, err := c.Send(c.Request(ctx, t, method, path, body, headers...))
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// Send sends a request and reads the whole answer. It returns an error if there was no answer at all.
func (c *Client) Send(req *http.Request) (Answer, error) {
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(b), Err: err}, nil
}

// Post sends a chat request and reads the whole answer, streamed or not.
func (c *Client) Post(t testing.TB, body string, headers ...string) Answer {
	t.Helper()
	return c.Do(t, http.MethodPost, "/v1/chat/completions", body, headers...)
}

// A Stream is an answer being read event by event.
type Stream struct {
	Status int
	Header http.Header

	cancel context.CancelFunc
	body   io.ReadCloser
	r      *bufio.Reader
}

// Stream sends a chat request and returns when the answer's headers are there.
func (c *Client) Stream(t testing.TB, body string, headers ...string) *Stream {
	t.Helper()
	return c.Open(t, "/v1/chat/completions", body, headers...)
}

// Open posts a request and returns when the answer's headers are there.
func (c *Client) Open(t testing.TB, path, body string, headers ...string) *Stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	resp, err := c.HTTP.Do(c.Request(ctx, t, http.MethodPost, path, body, //nolint:bodyclose // Stream.Close does
		headers...))
	if err != nil {
		cancel()
		t.Fatalf("opening a stream: %v", err)
	}
	s := &Stream{
		Status: resp.StatusCode, Header: resp.Header, cancel: cancel, body: resp.Body,
		r: bufio.NewReader(resp.Body),
	}
	t.Cleanup(s.Close)
	return s
}

// Close closes the connection, as an interrupted client does.
func (s *Stream) Close() {
	s.cancel()
	s.body.Close()
}

// Read reads what has arrived of an answer that is not a stream of events.
func (s *Stream) Read(p []byte) (int, error) { return s.r.Read(p) }

// Next returns the next event with the empty line that ends it. At the end of the stream it returns the rest
// and the error, io.EOF if the end was clean.
func (s *Stream) Next() (string, error) {
	var b strings.Builder
	for {
		line, err := s.r.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\n" || line == "\r\n" {
			return b.String(), err
		}
	}
}

// Expect reads the next event and compares it.
func (s *Stream) Expect(t testing.TB, want string) {
	t.Helper()
	got, err := s.Next()
	if err != nil || got != want {
		t.Fatalf("next event: %q, %v; want %q", got, err, want)
	}
}

// Rest reads to the end of the stream, which must come soon.
func (s *Stream) Rest() (string, error) {
	defer time.AfterFunc(Patience, s.cancel).Stop()
	b, err := io.ReadAll(s.r)
	return string(b), err
}

// An Error is an error body in the OpenAI shape.
type Error struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// ExpectError checks an error body, which has just the four fields: the status, the type and the code ("" for null).
func (a Answer) ExpectError(t testing.TB, status int, kind, code string) Error {
	t.Helper()
	var body struct {
		Error *Error `json:"error"`
	}
	dec := json.NewDecoder(strings.NewReader(a.Body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil || body.Error == nil {
		t.Fatalf("status %d, not an error body: %s", a.Status, a.Body)
	}
	for _, field := range []string{`"message":`, `"type":`, `"param":`, `"code":`} {
		if !strings.Contains(a.Body, field) {
			t.Errorf("the error body has no %s: %s", field, a.Body)
		}
	}
	e, got := *body.Error, ""
	if e.Code != nil {
		got = *e.Code
	}
	if a.Status != status || e.Type != kind || got != code {
		t.Errorf("got %d %s %q (%s); want %d %s %q", a.Status, e.Type, got, e.Message, status, kind, code)
	}
	if ct := a.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type of the error: %q", ct)
	}
	return e
}
