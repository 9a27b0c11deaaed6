package link

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// readUpstream reads one answer with its body, and tells whether the connection
// could be used again.
func readUpstream(method string, in io.Reader) (status int, h http.Header, body []byte, again bool, err error) {
	a := NewAnswerReader(in)
	status, h, err = a.Next(method)
	if err == nil {
		body, err = io.ReadAll(a)
	}
	if a.Ended() != (err == nil) {
		panic("an answer has ended, or has not, against its error")
	}
	again = a.Reusable()
	a.Release()
	return status, h, body, again, err
}

// silence is a connection on which nothing comes any more.
type silence struct{}

func (silence) Read([]byte) (int, error) { return 0, errors.New("read beyond the answer") }

func TestUpstreamAnswers(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	const chunks = ok + "Transfer-Encoding: chunked\r\n\r\n"
	for _, test := range []struct {
		name, method, answer, body string
		again                      bool
	}{
		{"length", "POST", ok + "Content-Length: 3\r\n\r\nabc", "abc", true},
		{"empty", "POST", ok + "Content-Length: 0\r\n\r\n", "", true},
		{"chunks", "POST", chunks + "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", "abcd", true},
		{"extensions", "POST", chunks + "3;a=b;c=\"d\"\r\nabc\r\n1;\r\nd\r\n0;e\r\n\r\n", "abcd", true},
		{"padded sizes", "POST", chunks + "3  \r\nabc\r\n0 \r\n\r\n", "abc", true},
		{"trailer", "POST", chunks + "3\r\nabc\r\n0\r\nA: b\r\nC: d\r\n\r\n", "abc", true},
		{"says close", "POST", ok + "Connection: Close\r\nContent-Length: 3\r\n\r\nabc", "abc", false},
		{"says close among others", "POST", ok + "Connection: keep-alive, close\r\nContent-Length: 3\r\n\r\nabc", "abc", false},
		{"old", "POST", "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc", false},
		{"old, to the end", "POST", "HTTP/1.0 200 OK\r\n\r\nabc", "abc", false},
		{"to the end", "POST", ok + "Connection: close\r\n\r\nabc", "abc", false},
		{"to the end, not announced", "POST", ok + "\r\nabc", "abc", false},
		{"more than asked for", "POST", ok + "Content-Length: 3\r\n\r\nabcHTTP/1.1 408 Timeout\r\n", "abc", false},
		{"head, length", "HEAD", ok + "Content-Length: 3\r\n\r\n", "", true},
		{"head, chunked", "HEAD", chunks, "", true},
		{"no content", "POST", "HTTP/1.1 204 No Content\r\n\r\n", "", true},
		{"not modified", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "", true},
		{"no content, yet some", "POST", "HTTP/1.1 204 No Content\r\n\r\nabc", "", false},
		{"informational", "POST", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n" + ok + "Content-Length: 3\r\n\r\nabc", "abc", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			end := io.Reader(silence{})
			if strings.HasSuffix(test.name, "to the end") || strings.HasSuffix(test.name, "not announced") {
				end = strings.NewReader("")
			}
			whole := io.MultiReader(strings.NewReader(test.answer), end)
			_, h, body, again, err := readUpstream(test.method, whole)
			if string(body) != test.body || again != test.again || err != nil || h.Get("A") != "" {
				t.Errorf("body %q, header %v, again %v, %v", body, h, again, err)
			}
			for _, in := range []io.Reader{
				iotest.OneByteReader(strings.NewReader(test.answer)),
				iotest.DataErrReader(strings.NewReader(test.answer)),
			} {
				if _, _, body, _, err := readUpstream(test.method, in); string(body) != test.body || err != nil {
					t.Errorf("in pieces: body %q, %v", body, err)
				}
			}
		})
	}
}

func TestMalformedUpstreamAnswers(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, answer := range []string{
		"", "HTTP/1.1", ok, ok + "A: b\r\n",
		"HTTP/2 200\r\n\r\n", "HTTP/0.9 200 OK\r\n\r\n", "ICY 200 OK\r\n\r\n", "<html>\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
		ok + "Content-Length: 3\r\n\r\nab",
		ok + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
		ok + "Content-Length: 3, 3\r\n\r\nabc",
		ok + "Content-Length: +3\r\n\r\nabc",
		ok + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		ok + "Transfer-Encoding: gzip\r\n\r\nabc",
		ok + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		ok + "A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
		ok + "A : b\r\nContent-Length: 0\r\n\r\n",
		ok + "A: b\nContent-Length: 0\r\n\r\n",
		chunked + "3\r\nabc", chunked + "3\r\nabc\r\n", chunked + "3\r\nabc\r\n0\r\n", chunked + "3\r\nab",
		chunked + "3\r\nabcd\r\n0\r\n\r\n",
		chunked + "x\r\nabc\r\n0\r\n\r\n", chunked + "-1\r\n", chunked + "0x3\r\nabc\r\n0\r\n\r\n", chunked + "\r\n",
		chunked + "7fffffffffffffff\r\nabc", chunked + "fffffffffffffffff\r\nabc",
		chunked + "3\nabc\n0\n\n", chunked + "3;a\nabc\r\n0\r\n\r\n", chunked + "3;a\rb\r\nabc\r\n0\r\n\r\n",
		chunked + "3 a\r\nabc\r\n0\r\n\r\n", chunked + " 3\r\nabc\r\n0\r\n\r\n",
		chunked + "3;" + strings.Repeat("a", 2*maxExtra) + "\r\nabc\r\n0\r\n\r\n",
		chunked + "0\r\nA: b\r\n c\r\n\r\n", chunked + "0\r\nA\r\n\r\n", chunked + "0\r\nA: b\n\r\n\r\n",
		chunked + "0\r\nA: " + strings.Repeat("a", 2*maxExtra) + "\r\n\r\n",
		ok + "A: " + strings.Repeat("a", 2*maxAnswerHead) + "\r\nContent-Length: 0\r\n\r\n",
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInformational+1),
	} {
		for _, in := range []io.Reader{strings.NewReader(answer), iotest.OneByteReader(strings.NewReader(answer))} {
			_, _, _, again, err := readUpstream("POST", in)
			if again || !errors.Is(err, ErrMalformed) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%.200q: again %v, %v", answer, again, err)
			}
		}
	}
}

// TestUpstreamAnswersInTurn reads several answers from one connection, with the
// buffer given back in between.
func TestUpstreamAnswersInTurn(t *testing.T) {
	var pieces []string
	for range 3 {
		pieces = append(pieces, chunked+"3\r\nabc\r\n", "0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nd", "e")
	}
	a := NewAnswerReader(&perRead{pieces})
	for i := range 6 {
		status, _, err := a.Next("POST")
		if err != nil || status != 200 || a.Reusable() {
			t.Fatalf("answer %d: %d, %v", i, status, err)
		}
		body, err := io.ReadAll(a)
		if want := []string{"abc", "de"}[i%2]; string(body) != want || err != nil || !a.Reusable() {
			t.Fatalf("answer %d: %q, %v", i, body, err)
		}
		a.Release()
	}
	if _, _, err := a.Next("POST"); err != io.ErrUnexpectedEOF {
		t.Errorf("after the last: %v", err)
	}
}

// TestUpstreamReadsMerge: chunks that arrived together are read together, and
// the end of the answer comes with its last bytes.
func TestUpstreamReadsMerge(t *testing.T) {
	a := NewAnswerReader(&perRead{[]string{
		chunked + "3\r\nabc\r\n2\r\nde\r\n4\r\nfg",
		"hi\r\n",
		"1\r\nj\r\n0\r\n\r\n",
	}})
	if _, _, err := a.Next("POST"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for _, want := range []struct {
		text string
		err  error
	}{{"abcdefg", nil}, {"hi", nil}, {"j", io.EOF}} {
		if n, err := a.Read(buf); string(buf[:n]) != want.text || err != want.err {
			t.Errorf("read %q, %v; want %q, %v", buf[:n], err, want.text, want.err)
		}
	}
}

func TestAppendRequest(t *testing.T) {
	r := &http.Request{
		Method: "POST", Host: "box:1", URL: &url.URL{Path: "/v1/a b", RawQuery: "c=d"},
		Header: http.Header{"A": {"b"}, "Te": {"x"}, "Content-Length": {"9"}, "Skipped": {"x"}},
	}
	b, err := AppendRequest(nil, r, 3, func(name string) bool { return name == "Skipped" })
	if want := "POST /v1/a%20b?c=d HTTP/1.1\r\nHost: box:1\r\nContent-Length: 3\r\nA: b\r\n\r\n"; string(b) != want || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	r.Header.Set("A", "secret\r\nB: c")
	if _, err := AppendRequest(nil, r, 3, noneSkipped); !errors.Is(err, ErrMalformed) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a value with a line end: %v", err)
	}
}

// FuzzUpstreamAnswer: what is read is what net/http reads, and nothing is read
// that net/http would not.
func FuzzUpstreamAnswer(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "POST")
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD")
	f.Add(chunked+"3;a=b\r\nabc\r\n0\r\nA: b\r\n\r\n", "POST")
	f.Add("HTTP/1.0 200 OK\r\n\r\nabc", "GET")
	f.Add("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", "DELETE")
	f.Fuzz(func(t *testing.T, answer, method string) {
		status, h, got, again, err := readUpstream(method, strings.NewReader(answer))
		if err != nil {
			return
		}
		request := &http.Request{Method: method}
		in := bufio.NewReader(strings.NewReader(answer))
		want, err := http.ReadResponse(in, request)
		for err == nil && want.StatusCode < 200 {
			want, err = http.ReadResponse(in, request)
		}
		if err != nil {
			t.Fatalf("net/http: %v", err)
		}
		body, err := io.ReadAll(want.Body)
		if err != nil || !bytes.Equal(got, body) || want.StatusCode != status || again && want.Close {
			t.Fatalf("status %d, body %q, again %v; net/http: %d, %q, close %v, %v",
				status, got, again, want.StatusCode, body, want.Close, err)
		}
		for _, name := range []string{"Connection", "Trailer"} { // net/http moves them elsewhere
			h.Del(name)
			want.Header.Del(name)
		}
		sameHeader(t, h, want.Header)
	})
}
