package agent

import (
	"bufio"
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
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

// closed tells whether the other end of a pipe was closed.
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
	conns, ends := pipes(3)
	var idle idleConns
	for _, c := range conns {
		idle.put(c)
	}
	age := func(c *connection, d time.Duration) {
		idle.mu.Lock()
		defer idle.mu.Unlock()
		c.since = c.since.Add(-d)
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
}

// TestIdleConnsHearTheUpstream: what comes without being asked, and a close, end
// a connection before the next request goes out on it.
func TestIdleConnsHearTheUpstream(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("only a failing request shows that here")
		return
	}
	for _, unasked := range []string{"", "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"} {
		said := make(chan struct{}, 2)
		address, conns := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
			if !takeRequest(in) {
				return
			}
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			time.Sleep(20 * time.Millisecond) // the answer is read by now
			io.WriteString(conn, unasked)
			if unasked == "" {
				conn.(*net.TCPConn).CloseWrite()
			}
			said <- struct{}{}
			if takeRequest(in) {
				t.Error("a second request came on the connection")
			}
		})
		p := proxyTo(t, address, nil)
		for range 2 {
			if w := ask(t.Context(), p, "{}"); w.status != 200 || w.body() != "ok" {
				t.Errorf("unasked %.12q: status %d, aborted %v", unasked, w.status, w.aborted)
			}
			<-said
			time.Sleep(10 * time.Millisecond)
		}
		if got := conns.Load(); got != 2 {
			t.Errorf("unasked %.12q: %d connections", unasked, got)
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
	p.upstream("box").idle.put(newConnection(counted, raw))
	for i, size := range []int{0, 1, 300, 30 << 10} {
		if w := ask(context.Background(), p, strings.Repeat("x", size)); w.status != 200 || counted.n != i+1 {
			t.Fatalf("%d bytes: status %d, %d writes after %d requests", size, w.status, counted.n, i+1)
		}
	}
}
