package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/quic-go/quic-go"
)

// fakeStream is a stream that reads from memory and keeps what is written.
type fakeStream struct {
	io.Reader
	written bytes.Buffer
	writes  int
}

func (s *fakeStream) Write(p []byte) (int, error) {
	s.writes++
	return s.written.Write(p)
}

func (s *fakeStream) Close() error                     { return nil }
func (s *fakeStream) CancelRead(quic.StreamErrorCode)  {}
func (s *fakeStream) CancelWrite(quic.StreamErrorCode) {}
func (s *fakeStream) SetReadDeadline(time.Time) error  { return nil }
func (s *fakeStream) Context() context.Context         { return context.Background() }

// readAnswer is RoundTrip's reading of an answer.
func readAnswer(method, answer string) (*http.Response, error) {
	return readAnswerFrom(method, strings.NewReader(answer))
}

func readAnswerFrom(method string, answer io.Reader) (*http.Response, error) {
	r := post("")
	r.Method = method
	a, err := RoundTrip(context.Background(), &fakeStream{Reader: answer}, r, nil)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(a.Body)
	a.Body = io.NopCloser(bytes.NewReader(b))
	return a, err
}

// readRequest is Serve's reading of a request.
func readRequest(request io.Reader) (r *http.Request, body []byte, err error) {
	s := &fakeStream{Reader: request}
	served := Serve(s, http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
		r = got
		body, err = io.ReadAll(got.Body)
	}))
	if err == nil {
		err = served
	}
	return r, body, err
}

const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

func TestReadAnswer(t *testing.T) {
	for _, test := range []struct{ name, answer, body string }{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"no reason", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", ""},
		{"chunks", chunked + "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", "abcd"},
		{"hex", chunked + "0A\r\n0123456789\r\nb\r\n0123456789a\r\n0\r\n\r\n", "01234567890123456789a"},
		{"case", "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n", ""},
		{"empty values and tabs", "HTTP/1.1 200 OK\r\nA:\r\nB: \t c \t \r\nContent-Length: 0\r\n\r\n", ""},
		{"informational", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 " +
			"OK\r\nContent-Length: 1\r\n\r\nx", "x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, r := range []io.Reader{
				strings.NewReader(test.answer),
				iotest.OneByteReader(strings.NewReader(test.answer)),
				iotest.DataErrReader(strings.NewReader(test.answer)),
			} {
				a, err := readAnswerFrom("POST", r)
				if err != nil {
					t.Fatal(err)
				}
				if b, _ := io.ReadAll(a.Body); string(b) != test.body || a.Header.Get("Link") != "" {
					t.Errorf("body %q, header %v", b, a.Header)
				}
			}
		})
	}
}

// malformedAnswers are refused. net/http accepts some of them.
var malformedAnswers = []string{
	"\r\n\r\n",
	"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/2 200\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 -20 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 O\x01K\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
	"HTTP/1.1 200 OK\r\n\r\nno framing",
	"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
	"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
	"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
	"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\na",
	"HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\na",
	"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\na",
	"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\na",
	"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: b\r\n c\r\n\r\n",
	"HTTP/1.1 200 OK\r\n A: b\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA : b\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n: b\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: b\rc\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: b\nc: d\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: b\n\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: \x00\r\n\r\n",
	"HTTP/1.1 200 OK\nContent-Length: 0\n\n\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
	chunked + "3\nabc\r\n0\r\n\r\n",
	chunked + "\r\nabc",
	chunked + "-3\r\nabc\r\n0\r\n\r\n",
	chunked + "3\r\nabcd\r\n0\r\n\r\n",
	chunked + "3\r\nabc\n0\r\n\r\n",
	chunked + "fffffffffffffffff\r\nabc",
	chunked + "7fffffffffffffff\r\nabc",
	chunked + "0\r\n\r\nx",
	chunked + "0\r\nA: " + strings.Repeat("a", smallBuffer) + "\r\n\r\n",
	chunked + "3;" + strings.Repeat("a", smallBuffer) + "\r\nabc\r\n0\r\n\r\n",
	strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", MaxInformational+1),
}

func TestMalformedAnswers(t *testing.T) {
	for _, answer := range malformedAnswers {
		_, err := readAnswer("POST", answer)
		if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUpstreamReset) {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

var malformedRequests = []string{
	"\r\n\r\n",
	"GET /\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.0\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
	"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
	"G\x01T / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET x HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /# HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /ä HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\n\r\n",
	"GET / HTTP/1.1\r\nHost:\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: events, chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab",
}

func TestMalformedRequests(t *testing.T) {
	for _, request := range malformedRequests {
		if _, _, err := readRequest(strings.NewReader(request)); !errors.Is(err, ErrMalformed) &&
			!errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", request, err)
		}
	}
}

// perRead is a stream whose reads return one piece each.
type perRead struct{ pieces []string }

func (r *perRead) Read(p []byte) (int, error) {
	if len(r.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.pieces[0])
	if r.pieces[0] = r.pieces[0][n:]; r.pieces[0] == "" {
		r.pieces = r.pieces[1:]
	}
	return n, nil
}

// TestEventsAreNotSplit: what arrives in one piece is read in one piece.
func TestEventsAreNotSplit(t *testing.T) {
	const events, size = 1000, 200
	pieces := []string{chunked}
	for range events {
		pieces = append(pieces, "c8\r\n"+strings.Repeat("e", size)+"\r\n")
	}
	pieces = append(pieces, "0\r\n\r\n")
	a, err := RoundTrip(t.Context(), &fakeStream{Reader: &perRead{pieces}}, post(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for i := range events {
		if n, err := a.Body.Read(buf); n != size || err != nil {
			t.Fatalf("event %d: read %d bytes, %v", i, n, err)
		}
	}
	if n, err := a.Body.Read(buf); n != 0 || err != io.EOF {
		t.Fatalf("end: %d, %v", n, err)
	}
}

// secret is in answers whose errors must not contain it.
const secret = "sk-secret"

// TestErrorsQuoteNothing puts a secret into each place of an answer about which net/http complains.
func TestErrorsQuoteNothing(t *testing.T) {
	for _, answer := range []string{
		secret + "\r\n\r\n",
		"HTTP/1.1 " + secret + "\r\n\r\n",
		"HTTP/" + secret + " 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secret + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nPostern-Error: " + secret + "\r\nContent-Length: 0\r\n\r\n",
		chunked + secret + "\r\n",
		chunked + "0\r\n" + secret + "\r\n\r\n",
		chunked + "0\r\nPostern-Error: " + secret + "\r\n\r\n",
	} {
		if _, err := readAnswer("POST", answer); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

// FuzzReadResponse reads an answer at once and in single bytes: the result is the same.
func FuzzReadResponse(f *testing.F) {
	for _, answer := range malformedAnswers {
		f.Add(answer)
	}
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
	f.Add(chunked + "3\r\nabc\r\n0\r\n\r\n")
	f.Add(chunked + "3\r\nabc\r\n0\r\nPostern-Error: busy\r\n\r\n")
	f.Add("HTTP/1.1 502 Bad Gateway\r\nPostern-Error: busy\r\nContent-Length: 0\r\n\r\n")
	f.Add("HTTP/1.1 204 No Content\r\nA: b\r\n\r\n")
	f.Add("HTTP/1.1 204 No Content\r\nA: " + strings.Repeat("\n", 100) + "\r\n\r\n")
	f.Add("HTTP/1.1 204 No Content\r\n" + strings.Repeat("A: b\r\n", MaxFields) + "\r\n")
	f.Add("HTTP/1.1 204 No Content\r\n" + strings.Repeat("A: b\r\n", MaxFields+1) + "\r\n")
	f.Add("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	f.Fuzz(func(t *testing.T, answer string) {
		read := func(r io.Reader) (status int, h http.Header, body []byte, ok bool) {
			a, err := readAnswerFrom("POST", r)
			if a == nil {
				return 0, nil, nil, false
			}
			body, _ = io.ReadAll(a.Body)
			return a.StatusCode, a.Header, body, err == nil
		}
		status, h, body, ok := read(strings.NewReader(answer))
		status1, h1, body1, ok1 := read(iotest.OneByteReader(strings.NewReader(answer)))
		if status != status1 || !maps.EqualFunc(h, h1, slices.Equal) || !bytes.Equal(body, body1) || ok != ok1 {
			t.Fatalf("at once: %d, %v, %q, %v; in single bytes: %d, %v, %q, %v", status, h, body, ok, status1, h1, body1, ok1)
		}
		fields := 0
		for _, values := range h {
			fields += len(values)
		}
		if fields > MaxFields || len(h["Content-Length"]) > 1 {
			t.Fatalf("the header has %d fields: %v", fields, h)
		}
	})
}

// FuzzReadRequest is FuzzReadResponse for requests.
func FuzzReadRequest(f *testing.F) {
	for _, request := range malformedRequests {
		f.Add(request)
	}
	f.Add("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
	f.Add("GET /v1/models?x=%20 HTTP/1.1\r\nHost: a\r\nA: b\r\nA: c\r\n\r\n")
	f.Fuzz(func(t *testing.T, request string) {
		r, body, err := readRequest(strings.NewReader(request))
		r1, body1, err1 := readRequest(iotest.OneByteReader(strings.NewReader(request)))
		if (r == nil) != (r1 == nil) || (err == nil) != (err1 == nil) || !bytes.Equal(body, body1) {
			t.Fatalf("at once: %v, %q, %v; in single bytes: %v, %q, %v", r, body, err, r1, body1, err1)
		}
		if r != nil && (CheckUpstream(r.Host) != nil || r.URL.Host != "" || !strings.HasPrefix(r.RequestURI, "/")) {
			t.Fatalf("a request to %q, %q", r.Host, r.RequestURI)
		}
	})
}

// TestRequestOnTheWire writes requests of all kinds of bodies. None waits for its body, and a small one is one write.
func TestRequestOnTheWire(t *testing.T) {
	const inChunks = "Transfer-Encoding: chunked\r\nA: b\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
	for name, test := range map[string]struct {
		method string
		body   io.Reader
		length int64
		want   string
	}{
		"known length":   {"POST", strings.NewReader("abc"), 3, "Content-Length: 3\r\nA: b\r\n\r\nabc"},
		"not in memory":  {"POST", io.MultiReader(strings.NewReader("abc")), 3, "Content-Length: 3\r\nA: b\r\n\r\nabc"},
		"unknown length": {"POST", strings.NewReader("abc"), -1, inChunks},
		"unknown of GET": {"GET", strings.NewReader("abc"), -1, inChunks},
		"length 0":       {"POST", strings.NewReader("abc"), 0, "Content-Length: 0\r\nA: b\r\n\r\n"},
		"none":           {"GET", nil, 0, "A: b\r\n\r\n"},
	} {
		r := &http.Request{
			Method: test.method, Host: "box", URL: &url.URL{Path: "/v1/a b", RawQuery: "c=d"}, ContentLength: test.length,
			Header: http.Header{"A": {"b"}, "Te": {"x"}, "Content-Length": {"9"}, "X-Api-Key": {"x"}},
		}
		if test.body != nil {
			r.Body = io.NopCloser(test.body)
		}
		s := &fakeStream{Reader: strings.NewReader("HTTP/1.1 204 No Content\r\n\r\n")}
		_, err := RoundTrip(t.Context(), s, r, nil)
		if got, want := s.written.String(), test.method+" /v1/a%20b?c=d HTTP/1.1\r\nHost: box\r\n"+test.want; got != want ||
			err != nil || s.writes != 1 {
			t.Errorf("%s: got %q in %d writes, %v; want %q", name, got, s.writes, err, want)
		}
		if r.Header.Get("X-Api-Key") == "" {
			t.Error("the caller's header was changed")
		}
	}
	r := post("{}")
	r.Header.Set("A", secret+"\r\nB: c")
	_, err := RoundTrip(t.Context(), &fakeStream{}, r, nil)
	if !errors.Is(err, ErrMalformed) || strings.Contains(err.Error(), secret) {
		t.Errorf("a value with a line end: %v", err)
	}
}
