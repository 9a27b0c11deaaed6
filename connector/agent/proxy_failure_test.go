package agent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// kill closes the connection of a request without another byte.
func kill(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

func TestProxyUpstreamDown(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // nobody listens there now
	w := &recorder{}
	proxyTo(t, "http://"+listener.Addr().String(), nil).ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/x", "{}"))
	if w.aborted != link.CodeUpstreamDown || w.status != 0 {
		t.Errorf("status %d, aborted %v", w.status, w.aborted)
	}
}

func TestProxyUpstreamDiesBeforeItsAnswer(t *testing.T) {
	var asked atomic.Int32
	server := serveBox(t, func(w http.ResponseWriter, r *http.Request) { asked.Add(1); kill(w) })
	w := &recorder{}
	proxyTo(t, server.URL, nil).ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/x", "{}"))
	if w.aborted != link.CodeUpstreamReset || w.status != 0 || asked.Load() != 1 {
		t.Errorf("status %d, aborted %v, asked %d times", w.status, w.aborted, asked.Load())
	}
}

func TestProxyUpstreamDiesInItsAnswer(t *testing.T) {
	for _, length := range []string{"", "100"} {
		server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			io.WriteString(w, "data: 1\n\n")
			http.NewResponseController(w).Flush()
			kill(w)
		})
		w := &recorder{}
		proxyTo(t, server.URL, nil).ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/x", "{}"))
		if w.aborted != link.CodeUpstreamReset || w.status != 200 {
			t.Errorf("Content-Length %q: status %d, aborted %v", length, w.status, w.aborted)
		}
	}
}

func TestProxyUpstreamSwitchesProtocols(t *testing.T) {
	server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
	})
	w := &recorder{}
	proxyTo(t, server.URL, nil).ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/x", "{}"))
	if w.aborted != link.CodeUpstreamReset {
		t.Errorf("status %d, aborted %v", w.status, w.aborted)
	}
}

// TestProxyStaleKeepAlive lets the upstream close connections just when the
// next request goes out on them, as model servers do after a few seconds. No
// request may fail by it, and none may be answered twice.
func TestProxyStaleKeepAlive(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var answered atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // answers one request, and hangs up on the next
				defer conn.Close()
				in := bufio.NewReader(conn)
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				io.Copy(io.Discard, r.Body)
				answered.Add(1)
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				in.ReadByte()
				conn.(*net.TCPConn).SetLinger(0)
			}()
		}
	}()
	p := proxyTo(t, "http://"+listener.Addr().String(), nil)
	const requests = 50
	for i := range requests {
		w := &recorder{}
		p.ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/x", strings.Repeat("x", i*4000)))
		if w.status != 200 || w.aborted != 0 || w.body() != "ok" {
			t.Fatalf("request %d: status %d, aborted %v, body %q", i, w.status, w.aborted, w.body())
		}
	}
	if got := answered.Load(); got != requests {
		t.Errorf("%d answers to %d requests", got, requests)
	}
}

// TestProxyDoesNotRepeatWork kills the upstream while it works on a request that
// came over a used connection: that one must fail, not run twice.
func TestProxyDoesNotRepeatWork(t *testing.T) {
	var asked atomic.Int32
	server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 {
			time.Sleep(staleWithin + 100*time.Millisecond)
			kill(w)
		}
	})
	p := proxyTo(t, server.URL, nil)
	p.ServeHTTP(&recorder{}, tunnelRequest(t.Context(), "POST", "/v1/x", "{}"))
	w := &recorder{}
	p.ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/x", "{}"))
	if w.aborted != link.CodeUpstreamReset || asked.Load() != 2 {
		t.Errorf("aborted %v, asked %d times", w.aborted, asked.Load())
	}
}

func TestProxyCancelFreesTheUpstream(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		t.Run(fmt.Sprintf("streaming %v", streaming), func(t *testing.T) {
			working, freed := make(chan struct{}), make(chan time.Time, 1)
			server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if streaming {
					io.WriteString(w, "data: 1\n\n")
					http.NewResponseController(w).Flush()
				}
				close(working)
				<-r.Context().Done()
				freed <- time.Now()
			})
			ctx, cancel := context.WithCancel(t.Context())
			w, done := &recorder{}, make(chan struct{})
			go func() {
				defer close(done)
				proxyTo(t, server.URL, nil).ServeHTTP(w, tunnelRequest(ctx, "POST", "/v1/x", "{}"))
			}()
			<-working
			start := time.Now()
			cancel()
			if took := (<-freed).Sub(start); took > 50*time.Millisecond {
				t.Errorf("the upstream was freed after %v", took)
			}
			<-done
			if w.aborted != link.CodeCancelled {
				t.Errorf("aborted %v", w.aborted)
			}
		})
	}
}

// TestProxyEarlyAnswer has the upstream answer before it reads the body, which
// is when a transport may still hold it: the answer must come through, and the
// buffer must not be given to the next request while it is read.
func TestProxyEarlyAnswer(t *testing.T) {
	server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, "early")
	})
	p := proxyTo(t, server.URL, nil)
	for range 200 {
		w := &recorder{}
		p.ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/x", strings.Repeat("x", 200_000)))
		if w.status != http.StatusUnauthorized || w.aborted != 0 || w.body() != "early" {
			t.Fatalf("status %d, aborted %v, body %q", w.status, w.aborted, w.body())
		}
	}
}
