package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/connector/panics"
)

// send sends a request with this body through p.
func send(t *testing.T, p *Proxy, w *recorder, body io.Reader, length int) {
	t.Helper()
	r := tunnelRequest(t.Context(), "POST", "/v1/embeddings", "")
	r.Body, r.ContentLength = io.NopCloser(body), int64(length)
	p.ServeHTTP(w, r)
}

// A body is passed on while it arrives, with its length, in whatever pieces.
func TestUploadIsPassedOn(t *testing.T) {
	got := make(chan string)
	address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		got <- fmt.Sprint(r.ContentLength)
		for size := 1; size <= 1<<20; size *= 2 {
			piece := make([]byte, size)
			_, _ = io.ReadFull(r.Body, piece)
			got <- string(piece)
		}
		io.WriteString(conn, okay+"Content-Length: 2\r\n\r\nok")
	})
	body, out := io.Pipe()
	w, done := &recorder{}, make(chan struct{})
	go func() {
		defer close(done)
		send(t, proxyTo(t, address, nil), w, body, 2<<20-1)
	}()
	io.WriteString(out, "a")
	if length := <-got; length != "2097151" {
		t.Errorf("the upstream got the length %s", length)
	}
	for size := 1; size <= 1<<20; size *= 2 {
		if size > 1 {
			io.WriteString(out, strings.Repeat("a", size))
		}
		if size == 1<<20 {
			out.Close() // before, the upstream does not get the last bytes
		}
		if piece := <-got; piece != strings.Repeat("a", size) {
			t.Fatalf("the upstream got another piece of %d bytes", len(piece))
		}
	}
	if <-done; w.body() != "ok" || w.aborted != nil {
		t.Errorf("aborted %v, body %q", w.aborted, w.body())
	}
}

func TestUploadInEachSize(t *testing.T) {
	server := serveBox(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	p := proxyTo(t, server.URL, nil)
	for _, size := range []int{0, 1, 4<<10 - 1, 4 << 10, 4<<10 + 1, chunkBytes - 200, chunkBytes, 300_000} {
		want := strings.Repeat("abcdefg", size/7+1)[:size]
		for _, in := range []io.Reader{
			strings.NewReader(want), iotest.HalfReader(strings.NewReader(want)), iotest.DataErrReader(strings.NewReader(want)),
		} {
			w := &recorder{}
			if send(t, p, w, in, size); w.body() != want || w.aborted != nil {
				t.Errorf("%d bytes in a %T: aborted %v, %d bytes came", size, in, w.aborted, len(w.body()))
			}
		}
	}
}

// An upstream does not get a whole request whose body breaks, or does not have its length: of a small one, it gets
// nothing. Its connection is closed.
func TestUploadBreaks(t *testing.T) {
	for _, length := range []int{1, 200, 100_000} {
		then := func(n int, end io.Reader) io.Reader {
			return io.MultiReader(strings.NewReader(strings.Repeat("x", n)), end)
		}
		for what, test := range map[string]struct {
			body io.Reader
			want *link.Failure
		}{
			"short": {strings.NewReader(strings.Repeat("x", length-1)), link.ErrInternal},
			"cut":   {then(length-1, iotest.ErrReader(io.ErrUnexpectedEOF)), link.ErrInternal},
			"long":  {strings.NewReader(strings.Repeat("x", length+1)), link.ErrInternal},
			"bad":   {then(length, iotest.ErrReader(fmt.Errorf("%w: decoding", link.ErrInternal))), link.ErrInternal},
			"lost":  {then(length/2, broken{}), link.ErrCancelled},
		} {
			closed := make(chan bool, 2)
			address, conns := scripted(t, func(_ int32, _ net.Conn, in *bufio.Reader) { closed <- takeRequest(in) })
			p, w := trusting(proxyTo(t, address, nil)), &recorder{}
			p.options.Budget = memory.NewBudget(16 << 20)
			send(t, p, w, test.body, length)
			if w.aborted != test.want || w.status != 0 {
				t.Errorf("%s, %d bytes: status %d, aborted %v", what, length, w.status, w.aborted)
			}
			if length < chunkBytes {
				if n := conns.Load(); n > 0 {
					t.Errorf("%s, %d bytes: %d connections", what, length, n)
				}
			} else if whole := <-closed; whole {
				t.Errorf("%s: the upstream got a whole request", what)
			}
			if held := p.options.Budget.Stats().Reserved; held > 0 || len(p.Upstreams()["box"].pool.kept) > 0 {
				t.Errorf("%s: %d bytes or a connection are held in the end", what, held)
			}
		}
	}
}

// An answer that comes while the body is on its way ends the request, also if nothing of the body arrives.
func TestUploadIsAnsweredEarly(t *testing.T) {
	for name, answer := range map[string]string{
		"length":  "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge",
		"chunked": "HTTP/1.1 413 Too Large\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nlarge\r\n0\r\n\r\n",
	} {
		address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
			_, _ = http.ReadRequest(in)
			io.WriteString(conn, answer)
		})
		p := proxyTo(t, address, nil)
		for n := range 150 {
			silent, out := io.Pipe()
			w := &recorder{onStop: func() { silent.CloseWithError(errors.New("stopped")) }}
			arrives := []int{1, 100_000, 5<<20 - 1}[n%3]
			send(t, p, w, io.MultiReader(bytes.NewReader(make([]byte, arrives)), silent), 5<<20)
			if w.status != http.StatusRequestEntityTooLarge || w.body() != "large" || w.aborted != nil {
				t.Fatalf("%s, %d bytes: status %d, body %q, aborted %v", name, arrives, w.status, w.body(), w.aborted)
			}
			out.Close()
		}
	}
}

// A kept connection that takes no byte of a request leaves its body for the next connection.
func TestUploadAfterKeptConnection(t *testing.T) {
	server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	p := trusting(proxyTo(t, server.URL, nil))
	pool := &p.Upstreams()["box"].pool
	near, far := net.Pipe()
	defer far.Close()
	pool.put(&connection{Conn: &failingWrites{Conn: near}, raw: near, pool: pool})
	body, out := io.Pipe()
	w := &recorder{onStop: func() { body.CloseWithError(errors.New("stopped")) }}
	go func() {
		_, _ = out.Write(make([]byte, 1<<20))
		out.Close()
	}()
	if send(t, p, w, body, 1<<20); w.body() != "1048576" || w.aborted != nil {
		t.Errorf("aborted %v, body %q", w.aborted, w.body())
	}
}

// counted counts what is read of a body.
type counted struct {
	io.Reader
	n atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// An upstream that does not read stops the body in the tunnel.
func TestUpstreamDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		r := tunnelRequest(t.Context(), "POST", "/v1/embeddings", "")
		body := &counted{Reader: strings.NewReader(strings.Repeat("x", 1<<20))}
		r.Body, r.ContentLength = io.NopCloser(body), 1<<20
		budget := memory.NewBudget(16 << 20)
		up, err := newServer("box", baseURL("http://box"), nil).open(budget, r, func() {})
		if err != nil {
			t.Fatal(err)
		}
		x := begin(t.Context(), unkept(near), up)
		const read = 200_000
		_, _ = io.CopyN(io.Discard, far, read)
		if synctest.Wait(); body.n.Load() > read+2*chunkBytes {
			t.Errorf("%d bytes were read", body.n.Load())
		}
		if held := budget.Stats().Reserved; held != chunkBytes+1<<20 {
			t.Errorf("%d bytes are reserved", held)
		}
		x.close()
		if held := budget.Stats().Reserved; held != 0 {
			t.Errorf("%d bytes are reserved in the end", held)
		}
	})
}

// While an upstream works on a request, nothing is reserved for its body.
func TestUploadIsReleased(t *testing.T) {
	for _, size := range []int{2, 1 << 20} {
		budget := memory.NewBudget(16 << 20)
		var held int64
		server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		p := proxyTo(t, server.URL, nil)
		p.options.Budget = budget
		u := p.Upstreams()["box"]
		up, err := u.open(budget, tunnelRequest(t.Context(), "POST", "/v1/embeddings", strings.Repeat("x", size)), func() {})
		if err != nil {
			t.Fatal(err)
		}
		if held = budget.Stats().Reserved; held != int64(chunkBytes+size) {
			t.Errorf("%d bytes: %d are reserved", size, held)
		}
		a, err := u.roundTrip(t.Context(), up)
		if err != nil {
			t.Fatal(err)
		}
		if <-a.request.written; budget.Stats().Reserved != 0 {
			t.Errorf("%d bytes: %d are reserved after the body", size, budget.Stats().Reserved)
		}
		_ = a.Close()
	}
}

// panicking is a body with a defect.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("a defect") }

// panickingReads is a connection with a defect, which takes what is written.
type panickingReads struct{ net.Conn }

func (panickingReads) Read([]byte) (int, error)    { panic("a defect") }
func (panickingReads) Write(b []byte) (int, error) { return len(b), nil }

// After a panic, too, nothing reads the body or its buffer, which others get.
func TestPanicOfReceive(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	silent, out := io.Pipe()
	defer out.Close()
	r := tunnelRequest(t.Context(), "POST", "/v1/embeddings", "")
	r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("x"), silent)), 1<<20
	up, err := newServer("box", baseURL("http://box"), nil).open(nil, r, func() { silent.Close() })
	if err != nil {
		t.Fatal(err)
	}
	x := begin(t.Context(), unkept(panickingReads{near}), up)
	defer func() {
		if panics.Caught(recover()) == nil {
			t.Error("no panic")
		}
		select {
		case <-x.written:
		default:
			t.Error("the body is still being read")
		}
	}()
	_, _ = x.receive()
}

func TestPanicOfBody(t *testing.T) {
	address, _ := scripted(t, func(_ int32, _ net.Conn, in *bufio.Reader) { takeRequest(in) })
	p := proxyTo(t, address, nil)
	p.options.Budget = memory.NewBudget(16 << 20)
	for _, arrives := range []int{0, 200_000} {
		func() {
			defer func() {
				if panics.Caught(recover()) == nil {
					t.Errorf("after %d bytes: no panic", arrives)
				}
			}()
			body := io.MultiReader(strings.NewReader(strings.Repeat("x", arrives)), panicking{})
			send(t, p, &recorder{}, body, 1<<20)
		}()
		if held := p.options.Budget.Stats().Reserved; held > 0 {
			t.Errorf("after %d bytes: %d are reserved in the end", arrives, held)
		}
	}
}
