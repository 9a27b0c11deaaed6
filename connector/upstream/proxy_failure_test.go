package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
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
	listener.Close() // the port is closed now
	w := &recorder{}
	proxyTo(t, "http://"+listener.Addr().String(), nil).ServeHTTP(w,
		tunnelRequest(t.Context(), "POST", "/v1/embeddings", "{}"))
	if w.aborted != link.ErrUpstreamDown || w.status != 0 {
		t.Errorf("status %d, aborted %v", w.status, w.aborted)
	}
}

func TestProxyUpstreamDiesBeforeItsAnswer(t *testing.T) {
	var asked atomic.Int32
	server := serveBox(t, func(w http.ResponseWriter, r *http.Request) { asked.Add(1); kill(w) })
	w := &recorder{}
	proxyTo(t, server.URL, nil).ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/embeddings", "{}"))
	if w.aborted != link.ErrUpstreamReset || w.status != 0 || asked.Load() != 1 {
		t.Errorf("status %d, aborted %v, asked %d times", w.status, w.aborted, asked.Load())
	}
}

// An answer that is not HTTP does not count as a lost connection.
func TestProxyUpstreamIsMalformed(t *testing.T) {
	for what, head := range map[string]string{
		"no name":           "HTTP/1.1 200 OK\r\nX-A\r\nContent-Length: 0\r\n\r\n",
		"two lengths":       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"another protocol":  "SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"a malformed chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
	} {
		server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			io.WriteString(conn, head) // and it waits for the next request
		})
		w := &recorder{}
		proxyTo(t, server.URL, nil).ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/embeddings", "{}"))
		if w.aborted != link.ErrUpstreamMalformed {
			t.Errorf("%s: status %d, aborted %v", what, w.status, w.aborted)
		}
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
		proxyTo(t, server.URL, nil).ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/embeddings", "{}"))
		if w.aborted != link.ErrUpstreamReset || w.status != 200 {
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
	proxyTo(t, server.URL, nil).ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/embeddings", "{}"))
	if w.aborted != link.ErrUpstreamMalformed {
		t.Errorf("status %d, aborted %v", w.status, w.aborted)
	}
}

// TestProxyNeverRepeats: an upstream breaks a connection after it has read all or part of a
// request. It may be at work, so neither it nor another connector may get the request again.
func TestProxyNeverRepeats(t *testing.T) {
	ends := map[string]func(conn *net.TCPConn){
		"closes at once": func(*net.TCPConn) {},
		"closes later":   func(*net.TCPConn) { time.Sleep(200 * time.Millisecond) },
		"resets at once": func(conn *net.TCPConn) { conn.SetLinger(0) },
		"resets later":   func(conn *net.TCPConn) { time.Sleep(200 * time.Millisecond); conn.SetLinger(0) },
	}
	for name, end := range ends {
		for _, size := range []int{2, 100 << 10, 8 << 20} {
			for _, whole := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %d bytes, whole %v", name, size, whole), func(t *testing.T) {
					t.Parallel()
					var begun atomic.Int32
					address, conns := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
						if _, err := in.ReadByte(); err != nil {
							return
						}
						in.UnreadByte()
						begun.Add(1)
						if whole && !takeRequest(in) {
							t.Error("the request did not come whole")
						}
						end(conn.(*net.TCPConn))
					})
					if w := ask(t.Context(), proxyTo(t, address, nil),
						strings.Repeat("x", size)); w.aborted != link.ErrUpstreamReset || w.status != 0 {
						t.Errorf("status %d, aborted %v", w.status, w.aborted)
					}
					if begun.Load() != 1 || conns.Load() != 1 {
						t.Errorf("the request came %d times, over %d connections", begun.Load(), conns.Load())
					}
				})
			}
		}
	}
}

func TestProxyCancelFreesTheUpstream(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		t.Run(fmt.Sprintf("streaming %v", streaming), func(t *testing.T) {
			working, freed := make(chan struct{}), make(chan struct{})
			server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if streaming {
					io.WriteString(w, "data: 1\n\n")
					http.NewResponseController(w).Flush()
				}
				close(working)
				<-r.Context().Done()
				close(freed)
			})
			ctx, cancel := context.WithCancel(t.Context())
			w, done := &recorder{}, make(chan struct{})
			go func() {
				defer close(done)
				proxyTo(t, server.URL, nil).ServeHTTP(w, tunnelRequest(ctx, "POST", "/v1/embeddings", "{}"))
			}()
			<-working
			cancel()
			<-freed
			<-done
			if w.aborted != link.ErrCancelled {
				t.Errorf("aborted %v", w.aborted)
			}
		})
	}
}

// TestProxyEarlyAnswer: the upstream answers before it reads the body. The answer must get
// through, and the buffer of the body must not be used again while it is read.
func TestProxyEarlyAnswer(t *testing.T) {
	server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, "early")
	})
	p := proxyTo(t, server.URL, nil)
	for range 200 {
		w := &recorder{}
		p.ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/embeddings", strings.Repeat("x", 200_000)))
		if w.status != http.StatusUnauthorized || w.aborted != nil || w.body() != "early" {
			t.Fatalf("status %d, aborted %v, body %q", w.status, w.aborted, w.body())
		}
	}
}

func TestKeyFileErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	for text, want := range map[string]string{
		" \n":                     path + " is empty; write the upstream's API key into it",
		"a\nb":                    path + " must contain only the key, on one line",
		strings.Repeat("x", 8193): path + " has more than the 8192 bytes allowed for a key",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openKeyFile(path, time.Now, quiet); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := openKeyFile("/none", time.Now, quiet); err == nil ||
		err.Error() != "open /none: no such file or directory" {
		t.Errorf("got %v", err)
	}
}
