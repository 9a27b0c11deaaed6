package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

// scriptedConn is a connection that reads from memory and drops what is written.
type scriptedConn struct {
	net.Conn
	io.Reader
}

func (c scriptedConn) Read(b []byte) (int, error)  { return c.Reader.Read(b) }
func (c scriptedConn) Write(b []byte) (int, error) { return len(b), nil }
func (c scriptedConn) Close() error                { return nil }

// exchanged sends a request on conn and reads the answer.
func exchanged(method string, conn net.Conn, size int) (a *answer, body []byte, err error) {
	u := newServer("box", baseURL("http://box"), nil)
	request := u.request(tunnelRequest(context.Background(), method, "/v1/embeddings", ""), make([]byte, size))
	a, err = begin(context.Background(), conn, conn, request).receive(request)
	if err != nil {
		return nil, nil, err
	}
	body, err = io.ReadAll(a)
	_ = a.Close()
	return a, body, err
}

func readAnswer(method string, in io.Reader) (header http.Header, body []byte, err error) {
	a, body, err := exchanged(method, scriptedConn{Reader: in}, 0)
	if a != nil {
		header = a.Header
	}
	return header, body, err
}

// silence is a connection on which nothing arrives.
type silence struct{}

func (silence) Read([]byte) (int, error) { return 0, errors.New("read beyond the answer") }

const (
	okay    = "HTTP/1.1 200 OK\r\n"
	chunked = okay + "Transfer-Encoding: chunked\r\n\r\n"
)

func TestAnswers(t *testing.T) {
	for _, test := range []struct{ name, method, answer, body string }{
		{"length", "POST", okay + "Content-Length: 3\r\n\r\nabc", "abc"},
		{"empty", "POST", okay + "Content-Length: 0\r\n\r\n", ""},
		{"chunks", "POST", chunked + "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", "abcd"},
		{"extensions", "POST", chunked + "3;a=b;c=\"d\"\r\nabc\r\n1;\r\nd\r\n0;e\r\n\r\n", "abcd"},
		{"padded sizes", "POST", chunked + "3  \r\nabc\r\n0 \r\n\r\n", "abc"},
		{"trailer", "POST", chunked + "3\r\nabc\r\n0\r\nA: b\r\nC: d\r\n\r\n", "abc"},
		{"stream that says its end", "POST",
			"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\ndata: [DONE]\n\n",
			"data: 1\n\ndata: [DONE]\n\n"},
		{"says close", "POST", okay + "Connection: Close\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"says close among others", "POST", okay + "Connection: keep-alive, close\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"old", "POST", "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"old, to the end", "POST", "HTTP/1.0 200 OK\r\n\r\nabc", "abc"},
		{"to the end", "POST", okay + "Connection: close\r\n\r\nabc", "abc"},
		{"to the end, not announced", "POST", okay + "\r\nabc", "abc"},
		{"more than asked for", "POST", okay + "Content-Length: 3\r\n\r\nabcHTTP/1.1 408 Timeout\r\n", "abc"},
		{"head, length", "HEAD", okay + "Content-Length: 3\r\n\r\n", ""},
		{"head, chunked", "HEAD", chunked, ""},
		{"head of JSON", "HEAD", okay + "Content-Type: application/json\r\n\r\n", ""},
		{"no content", "POST", "HTTP/1.1 204 No Content\r\n\r\n", ""},
		{"not modified", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", ""},
		{"no content, yet some", "POST", "HTTP/1.1 204 No Content\r\n\r\nabc", ""},
		{"informational", "POST", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n" + okay +
			"Content-Length: 3\r\n\r\nabc", "abc"},
		{"LF alone", "POST", "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc", "abc"},
		{"LF among CRLF", "POST", okay + "A: b\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"a space after a name", "POST", okay + "A : b\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"a folded line", "POST", okay + "B: b\r\n c\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"equal lengths", "POST", okay + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"length and chunks", "POST",
			okay + "Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "abc"},
	} {
		t.Run(test.name, func(t *testing.T) {
			end := io.Reader(silence{})
			if strings.HasSuffix(test.name, "to the end") || strings.HasSuffix(test.name, "not announced") ||
				strings.HasSuffix(test.name, "says its end") {
				end = strings.NewReader("")
			}
			header, body, err := readAnswer(test.method, io.MultiReader(strings.NewReader(test.answer), end))
			if string(body) != test.body || err != nil || header.Get("A") != "" && test.name != "LF among CRLF" {
				t.Errorf("body %q, header %v, %v", body, header, err)
			}
			for _, in := range []io.Reader{
				iotest.OneByteReader(strings.NewReader(test.answer)),
				iotest.DataErrReader(strings.NewReader(test.answer)),
			} {
				if _, body, err := readAnswer(test.method, in); string(body) != test.body || err != nil {
					t.Errorf("in pieces: body %q, %v", body, err)
				}
			}
		})
	}
}

func TestMalformedAnswers(t *testing.T) {
	for _, answer := range []string{
		"HTTP/2 200\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/0.9 200 OK\r\n\r\n", "ICY 200 OK\r\n\r\n", "<html>\r\n\r\n",
		"SSH-2.0-x\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		okay + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		okay + "Content-Length: 3, 3\r\n\r\nabc",
		okay + "Content-Length: +3\r\n\r\nabc",
		okay + "Transfer-Encoding: gzip\r\n\r\nabc",
		okay + "Transfer-Encoding: events, chunked\r\n\r\n0\r\n\r\n", // the tunnel's alone
		okay + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
		okay + "A\r\nContent-Length: 0\r\n\r\n",
		chunked + "3\r\nabcd\r\n0\r\n\r\n",
		chunked + "x\r\nabc\r\n0\r\n\r\n", chunked + "-1\r\n", chunked + "0x3\r\nabc\r\n0\r\n\r\n", chunked + "\r\n",
		chunked + "fffffffffffffffff\r\nabc",
		chunked + "3\nabc\n0\n\n", chunked + "3;a\nabc\r\n0\r\n\r\n", chunked + "3;a\rb\r\nabc\r\n0\r\n\r\n",
		chunked + "3 a\r\nabc\r\n0\r\n\r\n", chunked + " 3\r\nabc\r\n0\r\n\r\n",
		chunked + "3;" + strings.Repeat("a", 8<<10) + "\r\nabc\r\n0\r\n\r\n",
		chunked + "0\r\nA\r\n\r\n",
		chunked + "0\r\nA: " + strings.Repeat("a", 8<<10) + "\r\n\r\n",
		okay + "A: " + strings.Repeat("a", 2*link.MaxAnswerHead) + "\r\nContent-Length: 0\r\n\r\n",
		okay + strings.Repeat("A: b\r\n", link.MaxFields+1) + "\r\n",
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", link.MaxInformational+1),
	} {
		for _, in := range []io.Reader{strings.NewReader(answer), iotest.OneByteReader(strings.NewReader(answer))} {
			if _, _, err := readAnswer("POST", io.MultiReader(in, silence{})); !errors.Is(err, link.ErrMalformed) {
				t.Errorf("%.200q: %v", answer, err)
			}
		}
	}
}

// An answer that is cut is not malformed. The end of the connection is not the end of JSON
// and of events: a server that dies would look like one that has finished, unless it said so.
func TestCutAnswers(t *testing.T) {
	for _, answer := range []string{
		"", "HTTP/1.1", okay, okay + "A: b\r\n",
		okay + "Content-Length: 3\r\n\r\nab",
		chunked + "3\r\nabc", chunked + "3\r\nabc\r\n", chunked + "3\r\nabc\r\n0\r\n", chunked + "3\r\nab",
		chunked + "7fffffffffffffff\r\nabc",
		okay + "Content-Type: application/json; charset=utf-8\r\n\r\n{}",
		okay + "Content-Type: text/event-stream\r\n\r\ndata: 1\n\n",
		"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\ndata: [DONE",
	} {
		for _, in := range []io.Reader{strings.NewReader(answer), iotest.OneByteReader(strings.NewReader(answer))} {
			if _, _, err := readAnswer("POST", in); err != io.ErrUnexpectedEOF {
				t.Errorf("%q: %v", answer, err)
			}
		}
	}
}

// The bytes of an answer may be secret. The log names the fault alone, and net/http logs none.
func TestAnswersAreNotLogged(t *testing.T) {
	var text bytes.Buffer
	defer log.SetOutput(log.Writer())
	log.SetOutput(&text)
	for _, answer := range []string{
		"SECRET\r\n\r\n", "HTTP/1.1 SECRET\r\n\r\n", "SECRET/1.1 200 OK\r\n\r\n", okay + "SECRET\r\n\r\n",
		okay + "SECRET : x\r\n\r\n",
		okay + "Content-Length: SECRET\r\n\r\n", okay + "Content-Length: 1\r\nContent-Length: SECRET\r\n\r\n",
		okay + "Transfer-Encoding: SECRET\r\n\r\n",
		chunked + "SECRET\r\n", chunked + "1\r\naSECRET", chunked + "0\r\nSECRET\r\n\r\n",
		okay + "Content-Length: 2\r\n\r\nokSECRET", "HTTP/1.1 204 No Content\r\n\r\nSECRET",
	} {
		address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
			if takeRequest(in) {
				io.WriteString(conn, answer)
			}
		})
		p := NewProxy(Set{"box": newServer("box", baseURL(address), nil)},
			Options{Logger: slog.New(slog.NewTextHandler(&text, nil)), Prober: NewProber(quiet)})
		ask(t.Context(), p, "{}")
	}
	if strings.Contains(text.String(), "SECRET") || !strings.Contains(text.String(), "malformed HTTP response") {
		t.Errorf("the log:\n%s", &text)
	}
}

// An SSH server speaks first: it is not a model server, whether it has seen the request or not.
func TestServerSpeaksFirst(t *testing.T) {
	address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
		io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n")
		io.Copy(io.Discard, in)
	})
	if w := ask(t.Context(), proxyTo(t, address, nil),
		strings.Repeat("x", 1<<20)); w.aborted != link.CodeUpstreamMalformed {
		t.Errorf("aborted %v", w.aborted)
	}
}

// TestReadsMerge: chunks that arrived together are read together, and the end of the answer
// comes with its last bytes or after them.
func TestReadsMerge(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	u := newServer("box", baseURL("http://box"), nil)
	request := u.request(tunnelRequest(t.Context(), "POST", "/v1/embeddings", ""), nil)
	go func() {
		takeRequest(bufio.NewReader(far))
		for _, piece := range []string{chunked + "3\r\nabc\r\n2\r\nde\r\n", "4\r\nfghi\r\n", "1\r\nj\r\n0\r\n\r\n"} {
			io.WriteString(far, piece)
		}
	}()
	a, err := begin(t.Context(), near, near, request).receive(request)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	buf := make([]byte, 4096)
	for _, want := range []string{"abcde", "fghi", "j"} {
		if n, err := a.Read(buf); string(buf[:n]) != want || err != nil && (err != io.EOF || want != "j") {
			t.Errorf("read %q, %v; want %q", buf[:n], err, want)
		}
	}
	if n, err := a.Read(buf); n != 0 || err != io.EOF {
		t.Errorf("the end: %d, %v", n, err)
	}
}

// countedWrites counts the writes to a connection.
type countedWrites struct {
	scriptedConn
	n int
}

func (c *countedWrites) Write(b []byte) (int, error) {
	c.n++
	return len(b), nil
}

// TestSmallRequestsAreOneWrite: the head and a small body go out together, also a conversation of
// many turns.
func TestSmallRequestsAreOneWrite(t *testing.T) {
	for _, size := range []int{0, 1, 300, 3 << 10, chunkBytes} {
		conn := &countedWrites{scriptedConn: scriptedConn{Reader: strings.NewReader(okay + "Content-Length: 0\r\n\r\n")}}
		a, _, err := exchanged("POST", conn, size)
		if err != nil {
			t.Fatal(err)
		}
		if <-a.exchange.written; conn.n != 1 {
			t.Errorf("%d bytes: %d writes", size, conn.n)
		}
	}
}

// failingWrites is a connection that breaks in the next write, after some bytes.
type failingWrites struct {
	net.Conn
	after int
}

func (c *failingWrites) Write(b []byte) (int, error) {
	n := min(c.after, len(b))
	c.Conn.Close()
	return n, net.ErrClosed
}

// TestOneByteIsARequest: a connection that takes no byte of the request cannot have brought it
// to the upstream. One byte is enough to doubt that.
func TestOneByteIsARequest(t *testing.T) {
	for _, size := range []int{2, 100 << 10} {
		for _, after := range []int{0, 1} {
			near, far := net.Pipe()
			_, _, err := exchanged("POST", &failingWrites{near, after}, size)
			if errors.Is(err, ErrNotConnected) != (after == 0) || err == nil {
				t.Errorf("%d bytes, a failure after %d: %v", size, after, err)
			}
			far.Close()
		}
	}
}

// The end of a request's context closes the connection also while a server is silent.
func TestContextEndsExchange(t *testing.T) {
	near, far := net.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	u := newServer("box", baseURL("http://box"), nil)
	request := u.request(tunnelRequest(ctx, "POST", "/v1/embeddings", ""), nil)
	go io.Copy(io.Discard, far)
	if _, err := begin(ctx, near, near, request).receive(request); err == nil || errors.Is(err, link.ErrMalformed) {
		t.Errorf("error %v", err)
	}
}

// A request that net/http refuses to send ends at once. Its answer would never come.
func TestUnsentRequestHasNoAnswer(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	u := newServer("box", baseURL("http://box"), nil)
	request := u.request(tunnelRequest(t.Context(), "GET", "/v1/models", ""), nil)
	request.URL.RawQuery = "a\nb"
	if _, err := begin(t.Context(), near, near, request).receive(request); !errors.Is(err, ErrNotConnected) {
		t.Errorf("error %v", err)
	}
}

// panickingWrites is a connection with a defect.
type panickingWrites struct{ net.Conn }

func (panickingWrites) Write([]byte) (int, error) { panic("a defect") }

// A panic of the goroutine that sends a large request is the caller's, which recovers.
func TestPanicOfSend(t *testing.T) {
	for _, size := range []int{0, 1 << 20} {
		near, far := net.Pipe()
		func() {
			defer func() {
				if p := panics.Caught(recover()); p == nil {
					t.Errorf("%d bytes: no panic", size)
				}
			}()
			_, _, _ = exchanged("POST", panickingWrites{near}, size)
		}()
		far.Close()
	}
}

// heldWrites is a connection whose writes end some time after it was closed.
type heldWrites struct {
	net.Conn
	closed, end chan struct{}
}

func (c heldWrites) Close() error {
	close(c.closed)
	return c.Conn.Close()
}

func (c heldWrites) Write([]byte) (int, error) {
	<-c.end
	return 1, net.ErrClosed
}

func (c heldWrites) Read(b []byte) (int, error) {
	return copy(b, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"), nil
}

// The memory of a large request is released after Close: nothing reads it then.
func TestCloseWaitsForTheRequest(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	conn := heldWrites{near, make(chan struct{}), make(chan struct{})}
	u := newServer("box", baseURL("http://box"), nil)
	request := u.request(tunnelRequest(t.Context(), "POST", "/v1/embeddings", ""), make([]byte, 1<<20))
	a, err := begin(t.Context(), conn, conn, request).receive(request)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-conn.closed
		close(conn.end)
	}()
	_ = a.Close()
	select {
	case <-a.exchange.written:
	default:
		t.Error("the request is still being sent")
	}
}

// A connection whose answer is complete is reset, so that its port can be used again at once. One
// that is left earlier is reset by the system, as it has unread bytes, or closed.
func TestNoPortWaits(t *testing.T) {
	got := make(chan error, 1)
	address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
		takeRequest(in)
		io.WriteString(conn, okay+"Content-Length: 2\r\n\r\nok")
		_, err := in.ReadByte()
		got <- err
	})
	if w := ask(t.Context(), proxyTo(t, address, nil), "{}"); w.body() != "ok" || w.aborted != 0 {
		t.Fatalf("body %q, aborted %v", w.body(), w.aborted)
	}
	if err := <-got; err == nil || err == io.EOF {
		t.Errorf("the connection ended with %v, not with a reset", err)
	}
}

// Some versions of net/textproto do not quote a malformed line.
func TestHeaderLinesAreNotShown(t *testing.T) {
	x := &exchange{left: 1}
	if err := x.cause(textproto.ProtocolError("malformed MIME header line: SECRET")); strings.Contains(err.Error(),
		"SECRET") {
		t.Error(err)
	}
}
