package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/coder/websocket"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

func TestLoggerNames(t *testing.T) {
	logs := &caddyhttp.ServerLogConfig{
		DefaultLoggerName: "rest",
		LoggerNames: map[string]caddyhttp.StringArray{
			"gw.example.com":  {"one", "two"},
			"*.example.org":   {"wild"},
			"off.example.com": {},
		},
		SkipHosts: []string{"quiet.example.com", "*.quiet.example.com"},
	}
	mapped := *logs
	mapped.SkipUnmappedHosts = true
	for _, test := range []struct {
		logs *caddyhttp.ServerLogConfig
		host string
		want []string
	}{
		{logs, "gw.example.com", []string{"one", "two"}},
		{logs, "GW.example.com:8443", []string{"one", "two"}},
		{logs, "a.example.org", []string{"wild"}},
		{logs, "a.b.example.org", []string{"rest"}},
		{logs, "off.example.com", nil},
		{logs, "quiet.example.com", nil},
		{logs, "very.quiet.example.com", nil},
		{logs, "other.example.com", []string{"rest"}},
		{&mapped, "other.example.com", nil},
		{&mapped, "gw.example.com", []string{"one", "two"}},
	} {
		r := httptest.NewRequest("POST", "/v1/chat/completions", nil)
		r.Host = test.host
		if got := loggerNames(test.logs, r); !slices.Equal(got, test.want) {
			t.Errorf("loggerNames(%q) = %q, want %q", test.host, got, test.want)
		}
	}
}

// The log_name directive sends the entry of one request elsewhere.
func TestLoggerNamesOfRequest(t *testing.T) {
	vars := map[string]any{caddyhttp.AccessLoggerNameVarKey: []any{"mine", ""}}
	r := httptest.NewRequest("POST", "/v1/chat/completions", nil)
	r = r.WithContext(context.WithValue(r.Context(), caddyhttp.VarsCtxKey, vars))
	logs := &caddyhttp.ServerLogConfig{DefaultLoggerName: "rest"}
	if got, want := loggerNames(logs, r), []string{"mine", ""}; !slices.Equal(got, want) {
		t.Errorf("loggerNames = %q, want %q", got, want)
	}
}

// accessLogs receives the logs that have `output memory`.
var accessLogs = new(memoryLog)

func init() { caddy.RegisterModule(accessLogs) }

// memoryLog is a writer of logs that keeps them in memory.
type memoryLog struct {
	mu    sync.Mutex
	lines [][]byte
	wrote chan struct{}
}

func (*memoryLog) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.memory", New: func() caddy.Module { return new(memoryLog) }}
}
func (*memoryLog) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }
func (*memoryLog) String() string                                { return "memory" }
func (*memoryLog) WriterKey() string                             { return "memory" }
func (*memoryLog) OpenWriter() (io.WriteCloser, error)           { return accessLogs, nil }
func (*memoryLog) Close() error                                  { return nil }

func (l *memoryLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, bytes.Clone(p))
	select {
	case l.wrote <- struct{}{}:
	default: // no test waits for it
	}
	return len(p), nil
}

// No secret reaches the log, wherever a client puts it. The entry of a request without another secret than
// Authorization is Caddy's own, with the fields that other handlers add.
func TestAccessLogHidesSecrets(t *testing.T) {
	s := newTestSite(t, "log {\n output memory\n}\nlog_append late {http.request.method}\nlog_append <early "+
		"yes\nmodel_gateway")
	const query = "/v1/models?limit=1&"
	requests := []struct{ path, header string }{
		{"/v1/models", "X-Api-Key: " + s.key},
		{"/v1/models", "X-Api-Key: mistyped-" + s.key[10:]},
		{"/v1/models", "Api-Key: " + s.key},
		{"/v1/models", "X-Goog-Api-Key: " + s.key},
		{"/v1/models", "X_Api_Key: " + s.key},
		{"/v1/models", "Referer: https://example.com/?key=" + s.key},
		{"/v1/models", "X-Token: pmt_" + s.key[7:]},
		{"/v1/models", "X-Token: ptt_" + s.key[7:]},
		{query + "key=" + s.key, "Accept: */*"},
		{query + "key=%73k-svc-" + s.key[7:], "Accept: */*"},
		{query + s.key, "Accept: */*"},
		{query + s.key + "=1", "Accept: */*"},
		{"/v1/models/" + s.key, "Accept: */*"},
		{"/chat/completions", "X-Api-Key: " + s.key},
		{"/v1/models", "Authorization: Bearer " + s.key},
	}
	accessLogs.lines, accessLogs.wrote = nil, make(chan struct{}, len(requests))
	for _, r := range requests {
		s.do(t, "GET", r.path, "", r.header)
		wait.For(t, accessLogs.wrote, "the log entry of "+r.header)
	}
	for i, line := range accessLogs.lines {
		entry := entryOf(t, line)
		if own := i == len(requests)-1; own && (entry["late"] != "GET" || entry["early"] != "yes") ||
			entry["msg"] != "handled request" || entry["status"] == nil || entry["request"] == nil {
			t.Errorf("%s: the entry is %s", requests[i].header, line)
		}
		if bytes.Contains(line, []byte(s.key[10:])) {
			t.Errorf("%s: the entry has the key: %s", requests[i].header, line)
		}
	}
}

// allPaths has paths of each handler of the module, found or not, with answers of each kind.
var allPaths = []string{
	"/", "/healthz", "/readyz", "/chat/completions", "/nosuch",
	"/v1", "/v1/models", "/v1/models/", "/v1/v1/models", "/v1/nosuch", "/v1/responses/resp_x",
	"/console", "/console/", "/console//keys", "/console/keys", "/console/sign-in", "/console/setup", "/console/join",
	"/console/recover",
	"/console/events/home", "/console/static/x/y", "/console/install.sh", "/console/connectors/x",
	"/console/connector.schema.json",
	"/console/api/", "/console/api/keys", "/console/api/openapi.json", "/console/api/nosuch", "/console/chat/completions",
	"/.well-known/postern", "/.well-known/postern/ready", "/.well-known/postern/tunnel", "/.well-known/postern/nosuch",
}

// No secret of any kind reaches the log by any path of the module, in a request or in an answer
// that repeats the request's URL.
func TestAccessLogOfAllPathsHidesSecrets(t *testing.T) {
	s := newTestSite(t, "log {\n output memory\n}\nmodel_gateway\nmodel_console")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	digits := s.key[len("sk-svc-"):]
	for _, secret := range []string{s.key, "pmt_" + digits, "ptt_" + digits, digits, "PAIR-7K3M-Q9TX"} {
		for _, path := range allPaths {
			for _, c := range []struct{ url, header string }{
				{path + "?x=y&token=" + secret, "Accept: */*"},
				{path + "/" + secret, "Accept: */*"},
				{path, "X-Api-Key: " + secret},
				{path, "X_Api_Key: " + secret},
				{path, "X-Token: " + secret},
				{path, "Authorization: Bearer " + secret},
				{path, "Cookie: postern=" + secret},
				{path, "Referer: https://gw.example.com/console/setup?link=" + secret},
			} {
				for _, method := range []string{"GET", "POST"} {
					accessLogs.lines, accessLogs.wrote = nil, make(chan struct{}, 1)
					r, err := http.NewRequestWithContext(t.Context(), method, s.url+c.url, nil)
					must(t, err)
					name, value, _ := strings.Cut(c.header, ": ")
					r.Header[name] = []string{value}
					response, err := client.Do(r)
					must(t, err)
					response.Body.Close()
					wait.For(t, accessLogs.wrote, "the log entry of "+c.url)
					if line := accessLogs.lines[0]; bytes.Contains(line, []byte(secret)) {
						t.Errorf("%s %s with %s: the entry is %s", method, c.url, c.header, line)
					}
				}
			}
		}
	}
}

// The entry of a WebSocket of a connector is written, without the secrets of its URL.
func TestAccessLogOfWebSocketHidesSecrets(t *testing.T) {
	s := newTestSite(t, "log {\n output memory\n}\nmodel_gateway")
	accessLogs.lines, accessLogs.wrote = nil, make(chan struct{}, 1)
	options := &websocket.DialOptions{Subprotocols: []string{link.Subprotocol}}
	socket, _, err := websocket.Dial(t.Context(), s.url+link.WebSocketPath+"?token=ptt_"+s.key[7:], options)
	must(t, err)
	defer socket.CloseNow()
	wait.For(t, accessLogs.wrote, "the log entry")
	line := accessLogs.lines[0]
	if entry := entryOf(t, line); entry["status"] != 101. || bytes.Contains(line, []byte(s.key[7:])) {
		t.Errorf("the entry is %s", line)
	}
}

// The entry has the model of a request only if it is a valid name: it could be a prompt.
func TestAccessLogOfModels(t *testing.T) {
	s := newTestSite(t, "log {\n output memory\n}\nmodel_gateway")
	for model, logged := range map[string]any{"no/such:model": "no/such:model", "quartz sphinx, judge my vow": nil} {
		accessLogs.lines, accessLogs.wrote = nil, make(chan struct{}, 1)
		s.do(t, "POST", "/v1/chat/completions", `{"model":"`+model+`","messages":[]}`, "X-Api-Key: "+s.key)
		<-accessLogs.wrote
		line := accessLogs.lines[0]
		if entry := entryOf(t, line); entry["key_id"] == nil || entry["model"] != logged ||
			logged == nil && bytes.Contains(line, []byte("quartz")) {
			t.Errorf("%s: the entry is %s", model, line)
		}
	}
}

// The entry has no header that names the person behind a key, and is as complete as others.
func TestAccessLogHidesPeople(t *testing.T) {
	s := newTestSite(t, "log {\n output memory\n}\nmodel_gateway")
	st := s.app.store.Opened().Store
	for _, header := range []string{"", "X-OpenWebUI-User-Email"} {
		_, err := st.EditKey(t.Context(), "default", "test", func(k *store.Key) error {
			k.UserHeader = header
			return nil
		})
		must(t, err)
		for _, path := range []string{"/v1/models", "/models", "/v1/nosuch"} {
			accessLogs.lines, accessLogs.wrote = nil, make(chan struct{}, 1)
			s.do(t, "GET", path, "", "Authorization: Bearer "+s.key, "X-OpenWebUI-User-Email: anna@example.com",
				"X-OpenWebUI-User-Name: Anna%20anna@", "X-Other: yes")
			wait.For(t, accessLogs.wrote, "the log entry")
			line := accessLogs.lines[0]
			entry := entryOf(t, line)
			if bytes.Contains(line, []byte("anna@")) != (header == "") || entry["status"] == nil || entry["size"] == nil ||
				strings.HasPrefix(path, "/v1") && entry["key_id"] == nil || bytes.Contains(line, []byte(s.key)) ||
				!bytes.Contains(line, []byte("X-Other")) {
				t.Errorf("%s with %q: the entry is %s", path, header, line)
			}
		}
	}
}

func entryOf(t *testing.T, line []byte) (entry map[string]any) {
	t.Helper()
	must(t, json.Unmarshal(line, &entry))
	return entry
}
