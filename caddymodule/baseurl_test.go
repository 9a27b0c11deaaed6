package caddymodule

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// A path of the API without /v1 is answered with the right base URL, in its
// dialect, unless something else of the site serves it.
func TestBaseURLWithoutVersion(t *testing.T) {
	s := newTestSite(t, "model_gateway\nmodel_console\nerror /models 418\nrespond /messages/other other")
	for _, c := range []struct{ method, path, want string }{
		{"POST", "/chat/completions", `{"error":{"message":`},
		{"POST", "/completions", `{"error":{"message":`},
		{"POST", "/embeddings", `{"error":{"message":`},
		{"GET", "/models/m", `{"error":{"message":`},
		{"POST", "/responses", `{"error":{"message":`},
		{"DELETE", "/responses/resp_1", `{"error":{"message":`},
		{"POST", "/messages", `{"type":"error","error":{"type":"not_found_error"`},
		{"POST", "/messages/count_tokens", `{"type":"error","error":{"type":"not_found_error"`},
	} {
		response, body := s.do(t, c.method, c.path, `{}`)
		if response.StatusCode != http.StatusNotFound || !strings.HasPrefix(body, c.want) || !strings.Contains(body, "set the client's base URL to "+s.url+"/v1.") {
			t.Errorf("%s %s: %d %s", c.method, c.path, response.StatusCode, body)
		}
	}
	if response, body := s.do(t, "GET", "/models", ""); response.StatusCode != http.StatusTeapot || body != "" {
		t.Errorf("a path of another handler: status %d", response.StatusCode)
	}
	if _, body := s.do(t, "GET", "/messages/other", ""); body != "other" {
		t.Errorf("a path of another handler: %s", body)
	}
	if response, body := s.do(t, "GET", "/elsewhere", ""); response.StatusCode != http.StatusOK || body != "" {
		t.Errorf("a path that is none of the API's: %d %s", response.StatusCode, body)
	}
}

// What the handlers behind it serve is left alone.
func TestBaseURLOfOtherHandlers(t *testing.T) {
	failure := errors.New("no")
	for name, c := range map[string]struct {
		next   func(http.ResponseWriter) error
		status int
		err    error
	}{
		"nothing":         {func(http.ResponseWriter) error { return nil }, 404, nil},
		"a status":        {func(w http.ResponseWriter) error { w.WriteHeader(204); return nil }, 204, nil},
		"a body":          {func(w http.ResponseWriter) error { _, err := w.Write([]byte("x")); return err }, 200, nil},
		"a copied body":   {func(w http.ResponseWriter) error { _, err := io.Copy(w, strings.NewReader("x")); return err }, 200, nil},
		"a flush":         {func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() }, 200, nil},
		"an error":        {func(http.ResponseWriter) error { return failure }, 200, failure},
		"other protocols": {func(w http.ResponseWriter) error { w.WriteHeader(101); return nil }, 101, nil},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "http://gw.example.com/chat/completions", nil)
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
		err := new(BaseURL).ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error { return c.next(w) }))
		if w.Code != c.status || !errors.Is(err, c.err) || c.status != 404 && w.Body.Len() > 1 {
			t.Errorf("%s: status %d, error %v, %s", name, w.Code, err, w.Body)
		}
	}
}

// hijackable is a response whose connection a handler can take.
type hijackable struct{ *httptest.ResponseRecorder }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, _ := net.Pipe()
	return conn, bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn)), nil
}

// A connection that a handler has taken is left alone, although it has no status.
func TestBaseURLOfTakenConnections(t *testing.T) {
	w := hijackable{httptest.NewRecorder()}
	r := httptest.NewRequest("POST", "http://gw.example.com/chat/completions", nil)
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
	err := new(BaseURL).ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return err
		}
		return conn.Close()
	}))
	if err != nil || w.Body.Len() > 0 {
		t.Errorf("%v, %s", err, w.Body)
	}
}

// Browsers ask with OPTIONS, without a key, whether a page may call the API.
func TestOptions(t *testing.T) {
	s := newTestSite(t, "model_gateway")
	for path, allow := range map[string]string{
		"/v1/chat/completions": "POST", "/v1/messages": "POST", "/v1/models": "GET, HEAD", "/v1/models/m": "GET, HEAD",
	} {
		response, body := s.do(t, "OPTIONS", path, "", "Origin: https://app.example.com", "Access-Control-Request-Method: POST")
		if response.StatusCode != http.StatusMethodNotAllowed || response.Header.Get("Allow") != allow ||
			response.Header.Get("Access-Control-Allow-Origin") != "" || !strings.Contains(body, "allows no cross-origin requests (CORS)") {
			t.Errorf("%s: %d %v %s", path, response.StatusCode, response.Header, body)
		}
	}
	if response, body := s.do(t, "OPTIONS", "/v1/nosuch", ""); response.StatusCode != http.StatusNotFound {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}

// A key is taken from the headers of OpenAI's, Anthropic's and Azure's SDKs, in
// this order.
func TestKeyHeaders(t *testing.T) {
	s := newTestSite(t, "model_gateway")
	for _, c := range []struct {
		headers []string
		status  int
	}{
		{[]string{"Authorization: Bearer " + s.key}, 200},
		{[]string{"X-Api-Key: " + s.key}, 200},
		{[]string{"Api-Key: " + s.key}, 200},
		{[]string{"X-Api-Key: wrong", "Api-Key: " + s.key}, 401},
		{[]string{"Authorization: Bearer wrong", "X-Api-Key: " + s.key}, 401},
		{[]string{"X-Goog-Api-Key: " + s.key}, 401},
	} {
		if response, body := s.do(t, "GET", "/v1/models", "", c.headers...); response.StatusCode != c.status {
			t.Errorf("%s: %d %s", c.headers, response.StatusCode, body)
		}
	}
}
