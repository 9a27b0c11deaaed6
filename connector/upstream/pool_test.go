package upstream

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// trusting returns the proxy, whose upstream has passed its trial.
func trusting(p *Proxy) *Proxy {
	p.Upstreams()["box"].pool.passed = true
	return p
}

// kept returns a connection that the pool has got, and the server's end.
func kept(p *pool) (c *connection, far net.Conn) {
	near, far := net.Pipe()
	c = &connection{Conn: near, raw: near, pool: p}
	p.put(c)
	return c, far
}

// isOpen reports whether the other end of a connection is open.
func isOpen(far net.Conn) bool {
	_ = far.SetReadDeadline(time.Now())
	_, err := far.Read(make([]byte, 1))
	return err != io.EOF
}

func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(pool)
		_, far := kept(p)
		if p.take() != nil || p.keeps() {
			t.Error("a connection was used, or another one kept, during the trial")
		}
		if _, other := kept(p); isOpen(other) {
			t.Error("a second connection stayed open during the trial")
		}
		time.Sleep(trialTime)
		synctest.Wait()
		if isOpen(far) || !p.keeps() {
			t.Error("the trial has not ended")
		}
		a, _ := kept(p)
		b, end := kept(p)
		time.Sleep(keepTime / 2)
		if p.take() != b || p.take() != a || p.take() != nil {
			t.Error("the newest connection does not come first")
		}
		go io.WriteString(end, "x")
		if n, err := b.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("read %d, %v from a connection that was kept", n, err)
		}
		_, end = kept(p)
		time.Sleep(keepTime)
		if synctest.Wait(); isOpen(end) || p.take() != nil {
			t.Error("a connection was kept for too long")
		}
		for range maxKept {
			kept(p)
		}
		if _, end = kept(p); isOpen(end) {
			t.Error("too many connections are kept")
		}
		time.Sleep(keepTime)
	})
}

// A server that sends something on an idle connection, or closes it, gets no kept connections for an hour: after its
// trial, too.
func TestPoolPauses(t *testing.T) {
	for name, fail := range map[string]func(net.Conn){
		"sends":  func(far net.Conn) { go io.WriteString(far, "x") },
		"closes": func(far net.Conn) { far.Close() },
	} {
		for _, passed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				p := &pool{passed: passed}
				_, far := kept(p)
				fail(far)
				synctest.Wait()
				if p.take() != nil || p.keeps() {
					t.Errorf("%s, passed %t: connections are kept", name, passed)
				}
				time.Sleep(pauseTime)
				if !p.keeps() {
					t.Errorf("%s, passed %t: no trial after the pause", name, passed)
				}
				_, _ = kept(p)
				time.Sleep(trialTime)
				if synctest.Wait(); !p.passed {
					t.Errorf("%s, passed %t: the trial after the pause has failed", name, passed)
				}
			})
		}
	}
}

// crowd sends requests of 16 clients and returns the number of those without their own answer.
func crowd(t *testing.T, p *Proxy, requests int) int32 {
	t.Helper()
	var failed, next atomic.Int32
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for n := next.Add(1); n <= int32(requests); n = next.Add(1) {
				id := fmt.Sprintf("<%d>", n)
				if w := ask(t.Context(), p, id); w.status != http.StatusOK || w.aborted != nil || w.body() != id {
					failed.Add(1)
					if w.aborted == nil && w.body() != id {
						t.Errorf("request %s got the answer %q", id, w.body())
					}
				}
			}
		})
	}
	clients.Wait()
	return failed.Load()
}

func manyRequests() int {
	if testing.Short() {
		return 2000
	}
	return 10_000
}

// echo returns an answer with the body of a request.
func echo(body []byte) string {
	return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", okay, len(body), body)
}

// No request gets the answer of another one, and no log has a part of it.
func TestServerAnswersTwice(t *testing.T) {
	var log strings.Builder
	address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, _ := io.ReadAll(r.Body)
			io.WriteString(conn, echo(body))
			io.WriteString(conn, echo([]byte("surplus")))
		}
	})
	p := proxyTo(t, address, nil)
	p.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if failed := crowd(t, p, manyRequests()); failed > 0 || strings.Contains(log.String(), "surplus") {
		t.Errorf("%d requests failed; log:\n%.2000s", failed, &log)
	}
}

// A server without persistent connections, which does not announce that.
func TestServerClosesSilently(t *testing.T) {
	address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
		if r, err := http.ReadRequest(in); err == nil {
			body, _ := io.ReadAll(r.Body)
			io.WriteString(conn, echo(body))
		}
	})
	if failed := crowd(t, proxyTo(t, address, nil), manyRequests()); failed > 0 {
		t.Errorf("%d requests failed", failed)
	}
}

// A request is not repeated after the server has got a byte of it on a kept connection.
func TestServerClosesKeptConnections(t *testing.T) {
	for got := range 100 {
		address, conns := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
			if takeRequest(in) {
				io.WriteString(conn, echo(nil))
				_, _ = io.CopyN(io.Discard, in, int64(got))
			}
		})
		p := trusting(proxyTo(t, address, nil))
		begun := time.Now()
		ask(t.Context(), p, "{}")
		w := ask(t.Context(), p, "{}")
		switch n := conns.Load(); {
		case w.aborted == link.ErrUpstreamReset && n == 1:
		case w.status == http.StatusOK && n == 2 && (got == 0 || time.Since(begun) >= keepTime):
			// the connection ended before it was used
		default:
			t.Errorf("after %d bytes: aborted %v, %d connections", got, w.aborted, n)
		}
	}
}
