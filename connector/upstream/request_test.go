package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

// scriptedConn is a connection that reads from memory and ignores writes.
type scriptedConn struct {
	net.Conn
	io.Reader
}

func (c scriptedConn) Read(b []byte) (int, error)  { return c.Reader.Read(b) }
func (c scriptedConn) Write(b []byte) (int, error) { return len(b), nil }
func (c scriptedConn) Close() error                { return nil }

// unkept returns a connection that its request closes.
func unkept(conn net.Conn) *connection {
	return &connection{Conn: conn, raw: conn, pool: &pool{paused: time.Now().Add(time.Hour)}}
}

// opened returns a request with a body of size bytes.
func opened(method string, size int) *upload {
	u := newServer("box", baseURL("http://box"), nil)
	r := tunnelRequest(context.Background(), method, "/v1/embeddings", strings.Repeat("x", size))
	up, err := u.open(nil, r, func() {})
	if err != nil {
		panic(err)
	}
	return up
}

// exchanged sends a request on conn and reads the answer.
func exchanged(method string, conn net.Conn, size int) (a *modelAnswer, body []byte, err error) {
	a, err = begin(context.Background(), unkept(conn), opened(method, size)).receive()
	if err != nil {
		return nil, nil, err
	}
	body, err = io.ReadAll(a)
	_ = a.Close()
	return a, body, err
}

func (silence) Read([]byte) (int, error) { return 0, errors.New("read beyond the answer") }

// An SSH server sends first. It is not a model server, whether or not it has read the request.
func TestServerSpeaksFirst(t *testing.T) {
	address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
		io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n")
		io.Copy(io.Discard, in)
	})
	if w := ask(t.Context(), proxyTo(t, address, nil),
		strings.Repeat("x", 1<<20)); w.aborted != link.ErrUpstreamMalformed {
		t.Errorf("aborted %v", w.aborted)
	}
}

// TestReadsMerge: one read returns all chunks that have arrived. The end of the answer comes
// with its last bytes or after them.
func TestReadsMerge(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		takeRequest(bufio.NewReader(far))
		for _, piece := range []string{chunked + "3\r\nabc\r\n2\r\nde\r\n", "4\r\nfghi\r\n", "1\r\nj\r\n0\r\n\r\n"} {
			io.WriteString(far, piece)
		}
	}()
	a, err := begin(t.Context(), unkept(near), opened("POST", 0)).receive()
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

// TestSmallRequestsAreOneWrite: the head is sent together with a small body, such as a
// conversation of many turns.
func TestSmallRequestsAreOneWrite(t *testing.T) {
	for _, size := range []int{0, 1, 300, 3 << 10, chunkBytes - 1<<10} {
		conn := &countedWrites{scriptedConn: scriptedConn{Reader: strings.NewReader(okay + "Content-Length: 0\r\n\r\n")}}
		a, _, err := exchanged("POST", conn, size)
		if err != nil {
			t.Fatal(err)
		}
		if <-a.request.written; conn.n != 1 {
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
// to the upstream. After one byte, it may have.
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

// panickingWrites is a connection with a defect.
type panickingWrites struct{ net.Conn }

func (panickingWrites) Write([]byte) (int, error) { panic("a defect") }

// A panic of the goroutine that sends a large request becomes a panic of the caller, which
// recovers.
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

// The memory of a large request can be released after Close, as nothing reads it.
func TestCloseWaitsForTheRequest(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	conn := heldWrites{near, make(chan struct{}), make(chan struct{})}
	a, err := begin(t.Context(), unkept(conn), opened("POST", 1<<20)).receive()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-conn.closed
		close(conn.end)
	}()
	_ = a.Close()
	select {
	case <-a.request.written:
	default:
		t.Error("the request is still being sent")
	}
}

// A connection whose answer is complete is reset, so that its port can be used again at once.
// The system resets a connection with unread bytes itself.
func TestNoPortWaits(t *testing.T) {
	got := make(chan error, 1)
	address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
		takeRequest(in)
		io.WriteString(conn, okay+"Content-Length: 2\r\n\r\nok")
		_, err := in.ReadByte()
		got <- err
	})
	if w := ask(t.Context(), proxyTo(t, address, nil), "{}"); w.body() != "ok" || w.aborted != nil {
		t.Fatalf("body %q, aborted %v", w.body(), w.aborted)
	}
	if err := <-got; err == nil || err == io.EOF {
		t.Errorf("the connection ended with %v, not with a reset", err)
	}
}
