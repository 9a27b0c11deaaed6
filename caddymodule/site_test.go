package caddymodule

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/logging"

	"github.com/postern-dev/postern/caddymodule/store"
)

// testSite is a site of Caddy in this process, with its gateway started and a
// key for everything.
type testSite struct {
	app *App
	url string
	key string
}

// newTestSite serves a site with lines in its block.
func newTestSite(t *testing.T, lines string) *testSite {
	t.Helper()
	app := provision(t, fmt.Sprintf("{\n model_gateway {\n  listen %s\n  public localhost:7443\n  storage bolt %s\n "+
		"}\n}\nhttp://:8080 {\n%s\n}",
		freeUDP(t), filepath.Join(t.TempDir(), "gateway.db"), lines))
	app.store.Messages = io.Discard
	start(t, app)
	httpApp, err := app.ctx.AppIfConfigured("http")
	must(t, err)
	server := httptest.NewServer(httpApp.(*caddyhttp.App).Servers["srv0"])
	t.Cleanup(server.Close)
	key, secret, err := app.store.Opened().Store.CreateKey(t.Context(),
		"default", store.KeyFields{Name: "test", Scope: "*"})
	if err != nil || key.ID == "" {
		t.Fatal(err)
	}
	return &testSite{app, server.URL, secret}
}

// do sends a request and reads the whole answer. Headers are "Name: value".
func (s *testSite) do(t *testing.T, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	must(t, err)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return response, string(text)
}

// A client that waits for "100 Continue" gets an error without sending its body, and the word if the body is read.
func TestExpectContinue(t *testing.T) {
	site := newTestSite(t, "model_gateway")
	for _, test := range []struct{ key, first, status string }{
		{"sk-svc-wrong", "", "401"},
		{site.key, "100", "404"}, // there is no model
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(site.url, "http://"))
		must(t, err)
		defer conn.Close()
		const body = `{"model":"m","messages":[{"role":"user","content":"Hi"}]}`
		fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", test.key, len(body))
		answer := bufio.NewReader(conn)
		status := func() string {
			t.Helper()
			line, err := answer.ReadString('\n')
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			return strings.Fields(line)[1]
		}
		if test.first != "" {
			if got := status(); got != test.first {
				t.Fatalf("the first status is %s", got)
			}
			_, _ = answer.ReadString('\n') // no headers
			fmt.Fprint(conn, body)
		}
		if got := status(); got != test.status {
			t.Errorf("status %s, want %s", got, test.status)
		}
	}
}
