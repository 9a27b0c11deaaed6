package caddymodule

import (
	"context"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
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
