package caddymodule

import (
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// keyHeader is the header of a key that is no Authorization.
const keyHeader = "X-Api-Key"

// accessLog adds what an exchange knows to the access log, if there is one.
//
// It writes the whole entry of a request that carries its key in X-Api-Key.
// Caddy hides Authorization and cookies in its entries, but not this header,
// and it takes its copy of the request before any handler runs; so its entry
// is called off, and one is written that differs only in the header.
type accessLog struct {
	logger *zap.Logger // as Caddy's own: http.log.access
}

// newAccessLog returns the log for a handler of a configuration.
func newAccessLog(ctx caddy.Context) accessLog {
	return accessLog{ctx.Logger(new(caddyhttp.App)).Named("log.access")}
}

// begin is called before a request is served; the request is to be served with
// the writer that it returns, and end called after it.
func (l accessLog) begin(w http.ResponseWriter, r *http.Request, ex *exchange) (_ http.ResponseWriter, end func()) {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Logs == nil {
		return w, func() {}
	}
	skip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.LogSkipVar).(bool)
	if r.Header[keyHeader] == nil || skip {
		return w, func() { addLogFields(r, ex) }
	}
	caddyhttp.SetVar(r.Context(), caddyhttp.LogSkipVar, true)
	shown := *r
	shown.Header = r.Header.Clone()
	shown.Header[keyHeader] = []string{"REDACTED"}
	entry := accessEntry{
		request:  caddyhttp.LoggableHTTPRequest{Request: &shown, ShouldLogCredentials: server.Logs.ShouldLogCredentials},
		body:     &countingReader{ReadCloser: r.Body},
		recorder: caddyhttp.NewResponseRecorder(w, nil, nil),
	}
	r.Body = entry.body
	return entry.recorder, func() {
		for _, name := range loggerNames(server.Logs, r) {
			entry.write(l.named(name), ex)
		}
	}
}

// addLogFields adds the exchange's fields to Caddy's entry.
func addLogFields(r *http.Request, ex *exchange) {
	extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
	if !ok {
		return
	}
	for _, field := range ex.logFields() {
		extra.Set(field)
	}
}

// named is the logger that a site's log directive gave a name, or the one
// without.
func (l accessLog) named(name string) *zap.Logger {
	if name == "" {
		return l.logger
	}
	return l.logger.Named(name)
}

// accessEntry is one entry in the making.
type accessEntry struct {
	request  caddyhttp.LoggableHTTPRequest
	body     *countingReader
	recorder caddyhttp.ResponseRecorder
}

// write writes the entry, with Caddy's fields in Caddy's order.
func (e *accessEntry) write(logger *zap.Logger, ex *exchange) {
	level := zapcore.InfoLevel
	if e.recorder.Status() >= http.StatusInternalServerError {
		level = zapcore.ErrorLevel
	}
	c := logger.Check(level, "handled request")
	if c == nil {
		return
	}
	user := ""
	if ex.Key != nil {
		user = ex.Key.ID()
	}
	c.Write(append([]zap.Field{
		zap.Object("request", e.request),
		zap.Int64("bytes_read", e.body.n),
		zap.String("user_id", user),
		zap.Duration("duration", time.Since(ex.Start)),
		zap.Int("size", e.recorder.Size()),
		zap.Int("status", e.recorder.Status()),
		zap.Object("resp_headers", caddyhttp.LoggableHTTPHeader{
			Header: e.recorder.Header(), ShouldLogCredentials: e.request.ShouldLogCredentials,
		}),
	}, ex.logFields()...)...)
}

// loggerNames are the loggers that Caddy would send a request's entry to; none
// if it would log nothing.
func loggerNames(logs *caddyhttp.ServerLogConfig, r *http.Request) []string {
	// The log_name directive's choice, for this one request.
	if chosen, ok := caddyhttp.GetVar(r.Context(), caddyhttp.AccessLoggerNameVarKey).([]any); ok {
		names := make([]string, len(chosen))
		for i, name := range chosen {
			names[i], _ = name.(string)
		}
		return names
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	host = strings.ToLower(host)
	if names, ok := hostEntry(logs.LoggerNames, host); ok {
		return names
	}
	for _, skipped := range logs.SkipHosts {
		if hostMatches(skipped, host) {
			return nil
		}
	}
	if logs.SkipUnmappedHosts {
		return nil
	}
	return []string{logs.DefaultLoggerName}
}

// hostEntry finds the entry of a host, by its name or by a wildcard.
func hostEntry(entries map[string]caddyhttp.StringArray, host string) ([]string, bool) {
	if names, ok := entries[host]; ok {
		return names, true
	}
	for pattern, names := range entries {
		if hostMatches(pattern, host) {
			return names, true
		}
	}
	return nil, false
}

// hostMatches reports whether a host has a name; a leading "*" label of the
// name stands for any one label.
func hostMatches(name, host string) bool {
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		_, parent, found := strings.Cut(host, ".")
		return found && strings.EqualFold(rest, parent)
	}
	return strings.EqualFold(name, host)
}

// countingReader counts the bytes that were read.
type countingReader struct {
	io.ReadCloser
	n int64
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n += int64(n)
	return n, err
}
