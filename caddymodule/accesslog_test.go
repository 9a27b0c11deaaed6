package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

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

// accessLogs is where a log goes that has `output memory`.
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
	l.wrote <- struct{}{}
	return len(p), nil
}

// No secret reaches the log, wherever a client puts it, and the fields of
// Caddy's own entries are all there: those that other handlers add, too.
func TestAccessLogHidesSecrets(t *testing.T) {
	s := newTestSite(t, "log {\n output memory\n}\nlog_append late {http.request.method}\nlog_append <early yes\nmodel_gateway")
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
		if entry["late"] != "GET" || entry["early"] != "yes" || entry["msg"] != "handled request" || entry["status"] == nil {
			t.Errorf("%s: the entry is %s", requests[i].header, line)
		}
		if bytes.Contains(line, []byte(s.key[10:])) {
			t.Errorf("%s: the entry has the key: %s", requests[i].header, line)
		}
	}
}

// The entry has the model of a request only if that can be the name of one: it may as well be
// a prompt.
func TestAccessLogOfModels(t *testing.T) {
	s := newTestSite(t, "log {\n output memory\n}\nmodel_gateway")
	for model, logged := range map[string]any{"no/such:model": "no/such:model", "quartz sphinx, judge my vow": nil} {
		accessLogs.lines, accessLogs.wrote = nil, make(chan struct{}, 1)
		s.do(t, "POST", "/v1/chat/completions", `{"model":"`+model+`","messages":[]}`, "X-Api-Key: "+s.key)
		<-accessLogs.wrote
		line := accessLogs.lines[0]
		if entry := entryOf(t, line); entry["key_id"] == nil || entry["model"] != logged || logged == nil && bytes.Contains(line, []byte("quartz")) {
			t.Errorf("%s: the entry is %s", model, line)
		}
	}
}

func entryOf(t *testing.T, line []byte) (entry map[string]any) {
	t.Helper()
	if err := json.Unmarshal(line, &entry); err != nil {
		t.Fatal(err)
	}
	return entry
}
