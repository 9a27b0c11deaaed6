package upstream

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes returns n connections with their other ends.
func pipes(n int) (conns []*connection, ends []net.Conn) {
	for range n {
		near, far := net.Pipe()
		conns, ends = append(conns, newConnection(near, near)), append(ends, far)
	}
	return conns, ends
}

// closed reports whether the other end of a pipe was closed.
func closed(end net.Conn) bool {
	_ = end.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := end.Read(make([]byte, 1))
	return err == io.EOF
}

func TestIdleConnsLastFirst(t *testing.T) {
	conns, ends := pipes(maxIdle + 2)
	var idle idleConns
	for _, c := range conns {
		idle.put(c)
	}
	if closed(ends[0]) || closed(ends[maxIdle-1]) || !closed(ends[maxIdle]) || !closed(ends[maxIdle+1]) {
		t.Error("not exactly those above the limit were closed")
	}
	for i := maxIdle - 1; i > maxIdle-10; i-- {
		if c := idle.take(); c != conns[i] {
			t.Fatalf("take did not return connection %d", i)
		}
	}
	idle.drop()
	if !closed(ends[0]) || closed(ends[maxIdle-1]) || idle.take() != nil {
		t.Error("drop did not close the idle connections, and only these")
	}
}

func TestIdleConnsGrowOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns, ends := pipes(3)
		var idle idleConns
		for _, c := range conns {
			idle.put(c)
		}
		age := func(c *connection, d time.Duration) {
			idle.mu.Lock()
			defer idle.mu.Unlock()
			c.until = c.until.Add(-d)
		}
		age(conns[0], upstreamIdle)
		age(conns[1], upstreamIdle-30*time.Millisecond)
		idle.prune()
		if !closed(ends[0]) || closed(ends[1]) || closed(ends[2]) {
			t.Error("not exactly the old one was closed")
		}
		time.Sleep(100 * time.Millisecond)
		if !closed(ends[1]) || closed(ends[2]) {
			t.Error("the next one was not closed in time")
		}
		age(conns[2], upstreamIdle)
		if idle.take() != nil || !closed(ends[2]) {
			t.Error("an old connection was given out")
		}
	})
}

// waitUnusable waits until an idle connection shows that it was closed.
func waitUnusable(t *testing.T, p *idleConns) {
	t.Helper()
	for range 60_000 {
		p.mu.Lock()
		gone := len(p.conns) == 1 && !p.conns[0].usable()
		p.mu.Unlock()
		if gone {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the connection seems to be open still")
}

// TestIdleConnsHearTheUpstream: what comes without being asked, and a close, end
// a connection before the next request goes out on it.
func TestIdleConnsHearTheUpstream(t *testing.T) {
	for name, end := range map[string]func(conn *net.TCPConn){
		"closes":         func(conn *net.TCPConn) { conn.Close() },
		"closes one way": func(conn *net.TCPConn) { conn.CloseWrite() },
		"resets":         func(conn *net.TCPConn) { conn.SetLinger(0); conn.Close() },
		"announced": func(conn *net.TCPConn) {
			io.WriteString(conn, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			answered := make(chan struct{})
			address, conns := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
				if !takeRequest(in) {
					return
				}
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				answered <- struct{}{}
				end(conn.(*net.TCPConn))
				if takeRequest(in) {
					t.Error("a second request came on the connection")
				}
			})
			p := proxyTo(t, address, nil)
			for _, size := range []int{2, 100 << 10} {
				if w := ask(t.Context(), p, strings.Repeat("x", size)); w.status != 200 || w.body() != "ok" {
					t.Errorf("%d bytes: status %d, aborted %v", size, w.status, w.aborted)
				}
				<-answered
				waitUnusable(t, &p.Upstreams()["box"].idle)
			}
			if got := conns.Load(); got != 2 {
				t.Errorf("%d connections", got)
			}
		})
	}
}

// TestIdleConnsKeepAsAnnounced: an upstream may announce that it closes idle
// connections earlier than most.
func TestIdleConnsKeepAsAnnounced(t *testing.T) {
	for announced, want := range map[string]time.Duration{
		"":                          upstreamIdle,
		"Keep-Alive: timeout=5\r\n": upstreamIdle,
		"Keep-Alive: timeout=3, max=98\r\nConnection: Keep-Alive\r\n": 2 * time.Second,
		"Keep-Alive: max=98,timeout=1\r\n":                            0,
		"Keep-Alive: timeout=never\r\n":                               upstreamIdle,
	} {
		address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
			for takeRequest(in) {
				io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+announced+"Content-Length: 0\r\n\r\n")
			}
		})
		p := proxyTo(t, address, nil)
		ask(t.Context(), p, "{}")
		idle := &p.Upstreams()["box"].idle
		var got time.Duration
		if c := idle.take(); c != nil {
			got = c.life
			c.shut()
		}
		if got != want {
			t.Errorf("%q: kept for %v, not %v", announced, got, want)
		}
	}
}

// BenchmarkUsable measures what looking at an idle connection costs a request.
func BenchmarkUsable(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	raw, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	c := newConnection(raw, raw)
	b.ReportAllocs()
	for b.Loop() {
		if !c.usable() {
			b.Fatal("the connection is closed")
		}
	}
}

// countedWrites counts the writes to a connection.
type countedWrites struct {
	net.Conn
	n int
}

func (c *countedWrites) Write(b []byte) (int, error) {
	c.n++
	return c.Conn.Write(b)
}

// TestSmallRequestsAreOneWrite: the head and a small body go out together.
func TestSmallRequestsAreOneWrite(t *testing.T) {
	address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
		for takeRequest(in) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	raw, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	p := proxyTo(t, address, nil)
	counted := &countedWrites{Conn: raw}
	p.Upstreams()["box"].idle.put(newConnection(counted, raw))
	for i, size := range []int{0, 1, 300, 30 << 10} {
		if w := ask(context.Background(), p, strings.Repeat("x", size)); w.status != 200 || counted.n != i+1 {
			t.Fatalf("%d bytes: status %d, %d writes after %d requests", size, w.status, counted.n, i+1)
		}
	}
}
