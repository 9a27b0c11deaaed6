package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// scripted starts an upstream that runs script on each connection. The first connection has the
// number 1.
func scripted(t *testing.T, script func(n int32, conn net.Conn, in *bufio.Reader)) (address string,
	conns *atomic.Int32,
) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	conns = new(atomic.Int32)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				script(conns.Add(1), conn, bufio.NewReader(conn))
			}()
		}
	}()
	return "http://" + listener.Addr().String(), conns
}

// takeRequest reads one request, and reports whether that succeeded.
func takeRequest(in *bufio.Reader) bool {
	r, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err == nil
}

// ask sends one request through p.
func ask(ctx context.Context, p *Proxy, body string) *recorder {
	w := &recorder{}
	p.ServeHTTP(w, tunnelRequest(ctx, "POST", "/v1/embeddings", body))
	return w
}

// A connection is kept after a complete answer, unless the server closes it, or it was a stream. All are closed in the
// end.
func TestUpstreamConnections(t *testing.T) {
	for _, test := range []struct {
		name, answer, body string
		hangsUp            bool
		aborted            *link.Failure
		conns              int // of three requests
	}{
		{"length", okay + "Content-Length: 2\r\n\r\nok", "ok", false, nil, 1},
		{"chunked", chunked + "2\r\nok\r\n0\r\n\r\n", "ok", false, nil, 1},
		{
			"stream", okay + "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
			"ok", false, nil, 3,
		},
		{"informational", "HTTP/1.1 100 Continue\r\n\r\n" + okay + "Content-Length: 2\r\n\r\nok", "ok", false, nil, 1},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", "", false, nil, 1},
		{"will close", okay + "Connection: close\r\nContent-Length: 2\r\n\r\nok", "ok", false, nil, 3},
		{"old", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", false, nil, 3},
		{"old, to the end", "HTTP/1.0 200 OK\r\n\r\nok", "ok", true, nil, 3},
		{"to the end", okay + "Connection: close\r\n\r\nok", "ok", true, nil, 3},
		{"JSON to the end", okay + "Content-Type: application/json\r\n\r\n{}", "{}", true, nil, 3},
		{"stream to the end", okay + "Content-Type: text/event-stream\r\n\r\nok", "ok", true, link.ErrUpstreamReset, 3},
		{"too much", okay + "Content-Length: 2\r\n\r\nok!", "ok", false, nil, 3},
		{"cut chunk", chunked + "5\r\nok", "ok", true, link.ErrUpstreamReset, 3},
		{"cut chunks", chunked + "2\r\nok\r\n", "ok", true, link.ErrUpstreamReset, 3},
		{"cut length", okay + "Content-Length: 5\r\n\r\nok", "ok", true, link.ErrUpstreamReset, 3},
		{"cut head", okay, "", true, link.ErrUpstreamReset, 3},
		{
			"no chunks", okay + "Content-Length: 2\r\nTransfer-Encoding: gzip\r\n\r\nok",
			"", false, link.ErrUpstreamMalformed, 3,
		},
		{"not HTTP", "SSH-2.0-x\r\n\r\n", "", false, link.ErrUpstreamMalformed, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			left := make(chan bool, 3)
			address, conns := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
				defer func() { left <- true }()
				for takeRequest(in) {
					io.WriteString(conn, test.answer)
					if test.hangsUp {
						return
					}
				}
			})
			p := trusting(proxyTo(t, address, nil))
			begun := time.Now()
			for range 3 {
				if w := ask(t.Context(), p, "{}"); w.body() != test.body || w.aborted != test.aborted {
					t.Errorf("status %d, body %q, aborted %v", w.status, w.body(), w.aborted)
				}
			}
			slow := time.Since(begun) >= keepTime // a connection may have been kept for too long
			got := int(conns.Load())
			if got != test.conns && !(slow && got > test.conns) {
				t.Errorf("%d connections", got)
			}
			for range got { // the connector has closed them
				<-left
			}
		})
	}
}

// TestUpstreamThatDiesOfARequest: the gateway must not send a request that an upstream has seen
// to another connector.
func TestUpstreamThatDiesOfARequest(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		takeRequest(bufio.NewReader(conn))
		listener.Close()
		conn.Close()
	}()
	p := proxyTo(t, "http://"+listener.Addr().String(), nil)
	if w := ask(t.Context(), p, "{}"); w.aborted != link.ErrUpstreamReset {
		t.Errorf("aborted %v", w.aborted)
	}
	if w := ask(t.Context(), p, "{}"); w.aborted != link.ErrUpstreamDown {
		t.Errorf("a request that was not seen: aborted %v", w.aborted)
	}
}

// TestUpstreamCancel ends the context at each stage of a request. The upstream notices it at
// once, and the request ends as canceled.
func TestUpstreamCancel(t *testing.T) {
	for _, test := range []struct{ name, scheme, body, answer string }{
		{"connecting", "https", "{}", ""},
		{"writing", "http", strings.Repeat("x", 32<<20), ""},
		{"waiting", "http", "{}", ""},
		{"reading", "http", "{}", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"},
	} {
		t.Run(test.name, func(t *testing.T) {
			working, freed := make(chan struct{}), make(chan struct{})
			address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
				in.ReadByte()
				io.WriteString(conn, test.answer)
				time.Sleep(20 * time.Millisecond) // the client is in the middle of it
				close(working)
				io.Copy(io.Discard, in)
				close(freed)
			})
			p := proxyTo(t, test.scheme+strings.TrimPrefix(address, "http"), nil)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan *recorder)
			go func() { done <- ask(ctx, p, test.body) }()
			<-working
			cancel()
			w := <-done
			<-freed
			if w.aborted != link.ErrCancelled {
				t.Errorf("aborted %v", w.aborted)
			}
		})
	}
}

func TestUpstreamOverTLS(t *testing.T) {
	var state tls.ConnectionState
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state = *r.TLS
		n, _ := io.Copy(io.Discard, r.Body)
		io.WriteString(w, strings.Repeat("y", int(n)))
	}))
	server.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	server.Config.ErrorLog = slog.NewLogLogger(quiet.Handler(), slog.LevelError)
	server.StartTLS()
	defer server.Close()
	p := proxyTo(t, server.URL, nil)
	u := p.Upstreams()["box"]
	if w := ask(t.Context(), p, "{}"); w.aborted != link.ErrUpstreamDown {
		t.Errorf("an unknown certificate: status %d, aborted %v", w.status, w.aborted)
	}
	u.tls.RootCAs = x509.NewCertPool()
	u.tls.RootCAs.AddCert(server.Certificate())
	u.tls.ServerName = "example.com" // in the test server's certificate
	for _, size := range []int{2, 100, 1 << 20, 3} {
		if w := ask(t.Context(), p, strings.Repeat("x", size)); len(w.body()) != size || w.aborted != nil {
			t.Fatalf("%d bytes: status %d, aborted %v, %d bytes", size, w.status, w.aborted, len(w.body()))
		}
	}
	if state.NegotiatedProtocol != "http/1.1" || state.ServerName != "example.com" {
		t.Errorf("protocol %q, name %q", state.NegotiatedProtocol, state.ServerName)
	}
}

// An https address of a server without HTTPS gets an error that names the fix.
func TestUpstreamWithoutTLS(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	p := proxyTo(t, strings.Replace(server.URL, "http:", "https:", 1), nil)
	_, err := p.Upstreams()["box"].Models(t.Context())
	if !errors.Is(err, ErrNotConnected) || !strings.Contains(err.Error(), "write http:// in its address") {
		t.Errorf("error %v", err)
	}
}

// HTTP/1.0 servers end their list of models with the connection. An incomplete list does not
// parse.
func TestModelsUpToTheEnd(t *testing.T) {
	for body, want := range map[string]error{`{"data": [{"id": "x"}]}`: nil, `{"data": [{"id": "x"}`: ErrNoList} {
		address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
			takeRequest(in)
			io.WriteString(conn, "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"+body)
			conn.Close()
		})
		list, err := newServer("box", baseURL(address), nil).Models(t.Context())
		if !errors.Is(err, want) || want == nil && !slices.Equal(list.IDs, []string{"x"}) {
			t.Errorf("%s: %v, %v", body, list.IDs, err)
		}
	}
}

func TestUpstreamAddresses(t *testing.T) {
	for raw, want := range map[string]struct{ host, address, name string }{
		"http://localhost:11434/v1":    {"localhost:11434", "localhost:11434", ""},
		"http://box/v1":                {"box", "box:80", ""},
		"https://api.example/x/v1":     {"api.example", "api.example:443", "api.example"},
		"https://api.example:8443/v1":  {"api.example:8443", "api.example:8443", "api.example"},
		"http://[::1]:8080/v1":         {"[::1]:8080", "[::1]:8080", ""},
		"http://[fe80::1%25eth0]:1/v1": {"[fe80::1]:1", "[fe80::1%eth0]:1", ""},
		"https://bücher.example/v1":    {"xn--bcher-kva.example", "xn--bcher-kva.example:443", "xn--bcher-kva.example"},
	} {
		base, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		u := newServer("box", base, nil)
		name := ""
		if u.tls != nil {
			name = u.tls.ServerName
		}
		if u.host != want.host || u.Address != want.address || name != want.name {
			t.Errorf("%s: Host %s, address %s, name %s", raw, u.host, u.Address, name)
		}
	}
}
