package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/memory"
)

func TestProxyRequestHeaders(t *testing.T) {
	var got *http.Request
	var gotBody []byte
	server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		gotBody, _ = io.ReadAll(r.Body)
	})
	p := proxyTo(t, server.URL, nil)
	r := tunnelRequest(t.Context(), "POST", "/v1/chat/completions?beta=true", `{"model":"x"}`)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Traceparent": "00-1-2-3", "User-Agent": "openai", "Accept": "*/*",
		"Authorization": "Bearer sk-svc-client", "X-Api-Key": "sk-svc-client", "Cookie": "a=b", "Origin": "https://evil",
		"Referer": "https://evil/x", "Postern-Error": "busy", "Postern-Body": "1",
		"Accept-Encoding": "gzip, br", "Connection": "close, upgrade", "Upgrade": "websocket",
		"Keep-Alive":          "1",
		"Proxy-Authorization": "x", "Te": "trailers", "Transfer-Encoding": "chunked", "Trailer": "x",
		"Content-Length": "999", "Expect": "100-continue",
		"X-Original-Url": "/admin", "X-Rewrite-Url": "/admin", "X-Http-Method-Override": "DELETE", "X-Unknown": "1",
		"Tracestate":      "a=b",
		"X-Forwarded-For": "1.2.3.4", "X-Forwarded-Host": "evil", "Forwarded": "for=1", "Via": "1.1 x",
		"X-Real-Ip": "1.2.3.4",
	} {
		r.Header.Set(name, value)
	}
	w := &recorder{}
	p.ServeHTTP(w, r)
	if w.status != 200 || w.aborted != nil {
		t.Fatalf("status %d, aborted %v", w.status, w.aborted)
	}
	want := http.Header{
		"Content-Type": {"application/json"}, "Traceparent": {"00-1-2-3"}, "Tracestate": {"a=b"}, "User-Agent": {"openai"},
		"Accept":          {"*/*"},
		"Accept-Encoding": {"identity"}, "Content-Length": {"13"},
	}
	if !reflect.DeepEqual(got.Header, want) {
		t.Errorf("upstream got %v\nwant %v", got.Header, want)
	}
	if got.Host != strings.TrimPrefix(server.URL, "http://") || got.RequestURI != "/v1/chat/completions?beta=true" ||
		string(gotBody) != `{"model":"x"}` {
		t.Errorf("upstream got Host %s, URI %s, body %q", got.Host, got.RequestURI, gotBody)
	}
}

func TestProxyAnswerHeaders(t *testing.T) {
	address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
		if !takeRequest(in) {
			return
		}
		io.WriteString(conn, "HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 5\r\n")
		for name, value := range map[string]string{
			"Content-Type": "application/json", "X-Custom": "1", "Retry-After": "3", "Date": "Thu, 26 Nov 2026 00:00:00 GMT",
			"Server": "uvicorn", "Access-Control-Allow-Origin": "*", "Access-Control-Allow-Credentials": "true",
			"X-Accel-Buffering": "no",
			"Set-Cookie":        "a=b", "Alt-Svc": "h3", "Location": "http://10.0.0.5/v1/x",
		} {
			io.WriteString(conn, name+": "+value+"\r\n")
		}
		io.WriteString(conn, "\r\nmoved")
	})
	w := &recorder{}
	proxyTo(t, address, nil).ServeHTTP(w, tunnelRequest(t.Context(), "GET", "/v1/models", ""))
	want := http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"5"}, "X-Custom": {"1"},
		"Retry-After": {"3"},
	}
	if !reflect.DeepEqual(w.header, want) || w.status != http.StatusTemporaryRedirect || w.body() != "moved" {
		t.Errorf("got %d %v %q\nwant %v", w.status, w.header, w.body(), want)
	}
}

func TestProxyRefuses(t *testing.T) {
	asked := false
	server := serveBox(t, func(http.ResponseWriter, *http.Request) { asked = true })
	p := proxyTo(t, server.URL, nil)
	p.Upstreams()["box"].allow = patterns(t, "GET /v1/models/*", "GET /v1/a*")
	for _, target := range []string{
		"/", "/v1", "/v1/", "/api/tags", "/v1x/models", "/V1/models", "/v1/../api/tags", "/v1/./models", "/v1//models",
		"//v1/models", "/v1/models/",
		"/v1/%2e%2e/api/tags", "/v1/..%2fapi/tags", "/v1/a%2fb", "/v1/a%5cb", `/v1/a\..\..\api`, "/v1/a%00", "/v1/a%20b",
		"/v1/%6dodels", "/v1/a%3fb", "/v1/%c3%a9",
		"http://box/v1/models", "http://evil/v1/models", "/v1/..;/api", "*",
		"/v1/files", "/v1/Models", "/v1/modelsx", "/v1/chat/completions",
	} {
		w := &recorder{}
		p.ServeHTTP(w, tunnelRequest(t.Context(), "GET", target, ""))
		if w.aborted != link.ErrRefused || asked {
			t.Fatalf("%s: aborted %v, upstream asked: %v", target, w.aborted, asked)
		}
	}
	for _, method := range []string{
		"CONNECT", "TRACE", "OPTIONS", "PROPFIND", "HEAD", "POST", "PUT", "PATCH",
		"DELETE", "get",
	} {
		w := &recorder{}
		r := tunnelRequest(t.Context(), "GET", "/v1/models", "")
		r.Method = method
		if p.ServeHTTP(w, r); w.aborted != link.ErrRefused || asked {
			t.Errorf("%s: aborted %v, upstream asked: %v", method, w.aborted, asked)
		}
	}
	w := &recorder{}
	r := tunnelRequest(t.Context(), "GET", "/v1/models", "")
	r.URL.RawQuery = "a\r\nb"
	if p.ServeHTTP(w, r); w.aborted != link.ErrRefused || asked {
		t.Errorf("a query of two lines: aborted %v", w.aborted)
	}
	for _, host := range []string{"", "other", "BOX", server.Listener.Addr().String()} {
		w := &recorder{}
		r := tunnelRequest(t.Context(), "GET", "/v1/models", "")
		r.Host = host
		if p.ServeHTTP(w, r); w.aborted != link.ErrRefused || asked {
			t.Errorf("host %q: aborted %v, upstream asked: %v", host, w.aborted, asked)
		}
	}
	w = &recorder{}
	if p.ServeHTTP(w, tunnelRequest(t.Context(), "GET", "/v1/models/qwen/qwen3:8b@x", "")); w.aborted != nil || !asked {
		t.Errorf("a good path: aborted %v", w.aborted)
	}
}

func TestProxyUpstreamPath(t *testing.T) {
	server := serveBox(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })
	w := &recorder{}
	proxyTo(t, server.URL+"/under/here", nil).ServeHTTP(w, tunnelRequest(t.Context(), "GET", "/v1/models", ""))
	if w.body() != "/under/here/v1/models" {
		t.Errorf("upstream got %s", w.body())
	}
}

func TestProxyUpstreamKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	write := func(text string, age time.Duration) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	var clock atomic.Int64
	var logged bytes.Buffer
	write("first\n", time.Hour)
	key, err := openKeyFile(path, func() time.Time { return time.Unix(clock.Load(), 0) },
		slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("Authorization"))
	})
	p := proxyTo(t, server.URL, key)
	ask := func() string {
		w := &recorder{}
		p.ServeHTTP(w, tunnelRequest(t.Context(), "GET", "/v1/models", ""))
		return w.body()
	}
	steps := []struct {
		name, text, want string
		seconds          int64
	}{
		{"at the start", "first\n", "Bearer first", 0},
		{"changed just now", "later", "Bearer first", 0},
		{"changed a while ago", "later", "Bearer later", 2},
		{"emptied", "", "Bearer later", 4},
		{"two lines", "a\nb", "Bearer later", 6},
		{"changed again", "third", "Bearer third", 8},
	}
	for i, step := range steps {
		write(step.text, time.Minute*time.Duration(len(steps)-i))
		clock.Store(step.seconds)
		if got := ask(); got != step.want {
			t.Errorf("%s: upstream got %q, want %q", step.name, got, step.want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	clock.Store(10)
	if got := ask(); got != "Bearer third" {
		t.Errorf("removed: upstream got %q", got)
	}
	for _, secret := range []string{"first", "later", "third"} {
		if strings.Contains(logged.String(), secret) {
			t.Errorf("the log contains a key: %s", &logged)
		}
	}
	if got := strings.Count(logged.String(), "failed to read the upstream key"); got != 2 {
		t.Errorf("%d warnings in %s", got, &logged)
	}
}

func TestProxyStreamsEventByEvent(t *testing.T) {
	next := make(chan struct{})
	server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			http.NewResponseController(w).Flush()
			<-next // continues only when the event has arrived
		}
	})
	w := &recorder{onWrite: func() { next <- struct{}{} }}
	proxyTo(t, server.URL, nil).ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/embeddings", "{}"))
	want := []string{"data: 0\n\n", "data: 1\n\n", "data: 2\n\n", "data: 3\n\n", "data: 4\n\n"}
	if !reflect.DeepEqual(w.writes, want) || w.aborted != nil {
		t.Errorf("writes %q, aborted %v", w.writes, w.aborted)
	}
}

// The header of a stream is sent before the first event, if that is late. Headers of other
// answers wait for their bodies.
func TestProxySendsTheHeaderOfASilentStream(t *testing.T) {
	for contentType, want := range map[string]int{"text/event-stream; charset=utf-8": 1, "application/json": 0} {
		release := make(chan struct{})
		server := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			http.NewResponseController(w).Flush()
			<-release
			fmt.Fprint(w, "data: 1\n\n")
		})
		w, begin := &recorder{}, sync.OnceFunc(func() { close(release) })
		if want > 0 {
			w.onFlush = begin
			time.AfterFunc(time.Minute, begin) // if it is never flushed
		} else {
			time.AfterFunc(50*time.Millisecond, begin)
		}
		proxyTo(t, server.URL, nil).ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/embeddings", "{}"))
		if w.flushed != want || w.body() != "data: 1\n\n" {
			t.Errorf("%s: flushed %d times, body %q", contentType, w.flushed, w.body())
		}
	}
}

// A request without memory is refused before the upstream sees it.
func TestProxyMemory(t *testing.T) {
	p := proxyTo(t, serveBox(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") }).URL, nil)
	p.options.Budget = memory.NewBudget(1 << 20)
	for what, body := range map[string]io.Reader{"large": broken{}, "encoded": decoder{broken{}}} {
		r := tunnelRequest(t.Context(), "POST", "/v1/embeddings", "")
		r.Body, r.ContentLength = io.NopCloser(body), 2<<20
		if d, ok := body.(decoder); ok {
			r.Body, r.ContentLength = d, 1
		}
		w := &recorder{}
		if p.ServeHTTP(w, r); w.aborted != link.ErrBusy {
			t.Errorf("a body that is %s: aborted %v", what, w.aborted)
		}
	}
	if held := p.options.Budget.Stats().Reserved; held != 0 {
		t.Errorf("%d bytes are held in the end", held)
	}
}

func TestProxyBodyLimit(t *testing.T) {
	p := proxyTo(t, "http://127.0.0.1:1", nil)
	for length, want := range map[int64]*link.Failure{maxBody + 1: link.ErrTooLarge, -1: link.ErrInternal} {
		r := tunnelRequest(t.Context(), "POST", "/v1/embeddings", "")
		r.Body, r.ContentLength = io.NopCloser(broken{}), length // it is not read
		w := &recorder{}
		if p.ServeHTTP(w, r); w.aborted != want {
			t.Errorf("announced length %d: aborted %v", length, w.aborted)
		}
	}
}

// decoder is a body that takes memory.
type decoder struct{ io.Reader }

func (decoder) DecoderMemory() int64 { return 8 << 20 }
func (decoder) Close() error         { return nil }

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("reset") }

func TestProxyPassesErrorsAndEmptyAnswers(t *testing.T) {
	for _, status := range []int{204, 400, 404, 415, 500, 503} {
		server := serveBox(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) })
		w := &recorder{}
		proxyTo(t, server.URL, nil).ServeHTTP(w, tunnelRequest(t.Context(), "POST", "/v1/embeddings", "{}"))
		if w.status != status || w.aborted != nil || len(w.writes) > 0 {
			t.Errorf("status %d: got %d, aborted %v, %q", status, w.status, w.aborted, w.writes)
		}
	}
}
