package tests

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// startSite starts a gateway with these lines in its site.
func startSite(t *testing.T, lines string) *harness.Client {
	t.Helper()
	return harness.Start(t, harness.Options{Lines: lines}).Client(t, "")
}

// The gateway does not change answers of other handlers of the site, wherever they are.
func TestFallbackOfOtherHandlers(t *testing.T) {
	root := t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "page.html"), []byte("a page"), 0o600))
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/app/nothing":
			w.WriteHeader(http.StatusNoContent)
		case "/app/empty":
		case "/app/early":
			w.WriteHeader(http.StatusEarlyHints)
			fallthrough
		default:
			_, _ = io.WriteString(w, "app")
		}
	}))
	defer upstream.Close()
	s := startSite(t, `model_console
	error /models 418
	respond /messages/other other
	handle /handled/* {
		respond /handled/yes yes
	}
	handle_path /stripped/* {
		respond {path}
	}
	redir /old /new
	reverse_proxy /app/* `+upstream.URL+` {
		@gone status 410
	}
	reverse_proxy /dead/* 127.0.0.1:1
	@files path /page.html /missing.html
	file_server @files {
		root `+root+`
	}
	handle_errors 502 {
		respond "my error" 502
	}`)
	for _, c := range []struct {
		path   string
		status int
		body   string // "" for an empty one, or our error for 404
	}{
		{"/models", 418, ""},
		{"/messages/other", 200, "other"},
		{"/handled/yes", 200, "yes"},
		{"/handled/no", 404, "base URL"},
		{"/stripped/x", 200, "/x"},
		{"/app/x", 200, "app"},
		{"/app/early", 200, "app"},
		{"/app/empty", 200, ""},
		{"/app/nothing", 204, ""},
		{"/dead/x", 502, "my error"},
		{"/page.html", 200, "a page"},
		{"/missing.html", 404, ""},
		{"/none.html", 404, "base URL"},
		{"/old", 404, "base URL"}, // redirected
	} {
		if a := s.Do(t, "GET", c.path, ""); a.Status != c.status || !strings.Contains(a.Body, c.body) ||
			c.body == "" && a.Body != "" {
			t.Errorf("%s: %d %s", c.path, a.Status, a.Body)
		}
	}
}

// Streams and taken connections of other handlers pass.
func TestFallbackOfStreams(t *testing.T) {
	release := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_ = http.NewResponseController(w).Flush()
			<-release
			_, _ = io.WriteString(w, "done")
			return
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, "echo "+line)
	}))
	defer upstream.Close()
	s := startSite(t, "model_console\nreverse_proxy "+upstream.URL+" {\nflush_interval -1\n}")

	response, err := http.Get(s.URL + "/stream") // returns with the flush
	close(release)
	must(t, err)
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "done" {
		t.Errorf("the stream: %q, %v", body, err)
	}

	address := strings.TrimPrefix(s.URL, "http://")
	conn, err := net.Dial("tcp", address)
	must(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello\n", address)
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 101 ") ||
		!strings.HasSuffix(string(answer), "\r\n\r\necho hello\n") {
		t.Errorf("the taken connection: %q, %v", answer, err)
	}
}

// While Caddy waits for shutdown_delay, the gateway serves, but is not ready.
func TestShutdownDelay(t *testing.T) {
	g := harness.Start(t, harness.Options{Global: "shutdown_delay 1h"})
	c := g.Client(t, "")
	if a := c.Do(t, "GET", "/readyz", ""); a.Status != 200 {
		t.Fatalf("/readyz before: %d %s", a.Status, a.Body)
	}
	g.Process.Signal(t, syscall.SIGTERM)
	harness.Poll(t, limit, "the gateway not being ready", nilContext(func() error {
		if a := c.Do(t, "GET", "/readyz", ""); a.Status != 503 || a.Body != "shutting down\n" {
			return fmt.Errorf("status %d, %s", a.Status, a.Body)
		}
		return nil
	}))
	served(t, c.Do(t, "GET", "/healthz", ""), "/healthz")
	if a := c.Do(t, "GET", "/v1/models", ""); a.Status != 401 {
		t.Errorf("/v1/models: %d %s", a.Status, a.Body)
	}
	g.Process.Kill()
}
