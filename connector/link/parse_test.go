package link

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
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
}

func (s *fakeStream) Write(p []byte) (int, error)      { return s.written.Write(p) }
func (s *fakeStream) Close() error                     { return nil }
func (s *fakeStream) CancelRead(quic.StreamErrorCode)  {}
func (s *fakeStream) CancelWrite(quic.StreamErrorCode) {}
func (s *fakeStream) SetReliableBoundary()             {}
func (s *fakeStream) SetReadDeadline(time.Time) error  { return nil }
func (s *fakeStream) Context() context.Context         { return context.Background() }

// readAnswer is RoundTrip's reading of an answer.
func readAnswer(method, answer string) (*http.Response, error) {
	return readAnswerFrom(method, strings.NewReader(answer))
}

func readAnswerFrom(method string, answer io.Reader) (*http.Response, error) {
	r := post("")
	r.Method = method
	a, err := RoundTrip(context.Background(), &fakeStream{Reader: answer}, RelayHeader{}, r, nil)
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

func TestMalformedAnswers(t *testing.T) {
	for _, answer := range []string{
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
		chunked + "3;ext=1\r\nabc\r\n0\r\n\r\n",
		chunked + "3 \r\nabc\r\n0\r\n\r\n",
		chunked + "3\nabc\r\n0\r\n\r\n",
		chunked + "\r\nabc",
		chunked + "-3\r\nabc\r\n0\r\n\r\n",
		chunked + "3\r\nabcd\r\n0\r\n\r\n",
		chunked + "3\r\nabc\n0\r\n\r\n",
		chunked + "fffffffffffffffff\r\nabc",
		chunked + "7fffffffffffffff\r\nabc",
		chunked + "0\r\nTrailer: x\r\n\r\n",
		chunked + "0\r\n\r\nx",
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", MaxInformational+1),
	} {
		if _, err := readAnswer("POST", answer); !errors.Is(err, ErrMalformed) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

func TestMalformedRequests(t *testing.T) {
	for _, request := range []string{
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
		"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: events, chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcd",
	} {
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
	a, err := RoundTrip(t.Context(), &fakeStream{Reader: &perRead{pieces}}, RelayHeader{}, post(""), nil)
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

// FuzzReadResponse: what is read is what net/http reads, and nothing is read
// that net/http would not.
func FuzzReadResponse(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
	f.Add(chunked + "3\r\nabc\r\n0\r\n\r\n")
	f.Add("HTTP/1.1 204 No Content\r\nA: b\r\n\r\n")
	f.Add("HTTP/1.1 204 No Content\r\nA: " + strings.Repeat("\n", 100) + "\r\n\r\n")
	f.Add("HTTP/1.1 204 No Content\r\n" + strings.Repeat("A: b\r\n", MaxFields) + "\r\n")
	f.Add("HTTP/1.1 204 No Content\r\n" + strings.Repeat("A: b\r\n", MaxFields+1) + "\r\n")
	f.Add("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	f.Add("HTTP/1.1 200 OK\nContent-Length: 0\n\n")
	f.Add("HTTP/1.1 200 OK\r\nA: b\nContent-Length: 0\r\n\r\n")
	f.Fuzz(func(t *testing.T, answer string) {
		a, err := readAnswer("POST", answer)
		if err != nil {
			return
		}
		if len(a.Header) > MaxFields {
			t.Fatalf("%d fields", len(a.Header))
		}
		got, _ := io.ReadAll(a.Body)
		in := bufio.NewReader(strings.NewReader(answer))
		want, err := http.ReadResponse(in, post(""))
		for err == nil && want.StatusCode < 200 {
			want, err = http.ReadResponse(in, post(""))
		}
		if err != nil {
			t.Fatalf("net/http: %v", err)
		}
		body, err := io.ReadAll(want.Body)
		if err != nil || !bytes.Equal(got, body) || want.StatusCode != a.StatusCode {
			t.Fatalf("status %d, body %q; net/http: %d, %q, %v", a.StatusCode, got, want.StatusCode, body, err)
		}
		sameHeader(t, a.Header, want.Header)
	})
}

// FuzzReadRequest is FuzzReadResponse for requests.
func FuzzReadRequest(f *testing.F) {
	f.Add("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
	f.Add("GET /v1/models?x=%20 HTTP/1.1\r\nHost: a\r\nA: b\r\nA: c\r\n\r\n")
	f.Fuzz(func(t *testing.T, request string) {
		r, got, err := readRequest(strings.NewReader(request))
		if err != nil {
			return
		}
		if len(r.Header) > MaxFields {
			t.Fatalf("%d fields", len(r.Header))
		}
		want, err := http.ReadRequest(bufio.NewReader(strings.NewReader(request)))
		if err != nil {
			t.Fatalf("net/http: %v", err)
		}
		body, err := io.ReadAll(want.Body)
		if err != nil || !bytes.Equal(got, body) || r.Method != want.Method || r.Host != want.Host ||
			r.URL.Path != want.URL.Path || r.URL.RawQuery != want.URL.RawQuery {
			t.Fatalf("%s %s %s, body %q; net/http: %s %s %s, %q, %v", r.Method, r.Host, r.URL, got,
				want.Method, want.Host, want.URL, body, err)
		}
		sameHeader(t, r.Header, want.Header)
	})
}

// sameHeader compares with net/http's header, which lacks a redundant
// Content-Length at times.
func sameHeader(t *testing.T, got, want http.Header) {
	t.Helper()
	for name, values := range got {
		if name != "Content-Length" && strings.Join(values, "|") != strings.Join(want[name], "|") {
			t.Fatalf("%s: %q; net/http: %q", name, values, want[name])
		}
	}
	for name := range want {
		if got[name] == nil && name != "Content-Length" {
			t.Fatalf("%s is missing; net/http: %q", name, want[name])
		}
	}
}

func TestAppendRequest(t *testing.T) {
	r := &http.Request{
		Method: "POST", Host: "box", URL: &url.URL{Path: "/v1/a b", RawQuery: "c=d"},
		Header: http.Header{"A": {"b"}, "Te": {"x"}, "Content-Length": {"9"}, "X-Api-Key": {"x"}},
	}
	b, err := appendRequest(nil, r, 3)
	if want := "POST /v1/a%20b?c=d HTTP/1.1\r\nHost: box\r\nContent-Length: 3\r\nA: b\r\n\r\n"; string(b) != want ||
		err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	r.Header.Set("A", "secret\r\nB: c")
	if _, err := appendRequest(nil, r, 3); !errors.Is(err, ErrMalformed) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a value with a line end: %v", err)
	}
}
