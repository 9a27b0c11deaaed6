package caddymodule

import (
	"context"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/postern-dev/postern/caddymodule/serve"
)

// accessLog adds the fields of an exchange to the access log, if there is one.
//
// It writes the whole entry of a request that carries a secret which Caddy does
// not hide. Caddy hides Authorization and cookies in its entries, but no other
// header and nothing in the URI, and it takes its copy of the request before any
// handler runs; so its entry is called off, and one is written that differs only
// in what is hidden.
type accessLog struct {
	logger *zap.Logger // as Caddy's own: http.log.access
}

// newAccessLog returns the log for a handler of a configuration.
func newAccessLog(ctx caddy.Context) accessLog {
	return accessLog{ctx.Logger(new(caddyhttp.App)).Named("log.access")}
}

// begin is called before a request is served; the request is to be served with
// the writer that it returns, and end called after it.
func (l accessLog) begin(w http.ResponseWriter, r *http.Request, ex *serve.Exchange) (_ http.ResponseWriter, end func()) {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Logs == nil {
		return w, func() {}
	}
	skip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.LogSkipVar).(bool)
	if skip || !serve.CarriesSecret(r) {
		return w, func() { addLogFields(r, ex) }
	}
	caddyhttp.SetVar(r.Context(), caddyhttp.LogSkipVar, true)
	entry := &accessEntry{
		request:  caddyhttp.LoggableHTTPRequest{Request: serve.WithoutSecrets(r), ShouldLogCredentials: server.Logs.ShouldLogCredentials},
		body:     &countingReader{ReadCloser: r.Body},
		recorder: caddyhttp.NewResponseRecorder(w, nil, nil),
	}
	r.Body = entry.body
	return entry.recorder, func() {
		addLogFields(r, ex)
		entry.duration = time.Since(ex.Start)
		if ex.Key != nil {
			entry.user = ex.Key.ID()
		}
		for _, name := range loggerNames(server.Logs, r) {
			entry.loggers = append(entry.loggers, l.named(name))
		}
		entry.writeAfter(r.Context())
	}
}

// addLogFields adds the exchange's fields to Caddy's entry.
func addLogFields(r *http.Request, ex *serve.Exchange) {
	extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
	if !ok {
		return
	}
	add := func(name, value string) {
		if value != "" {
			extra.Set(zap.String(name, value))
		}
	}
	if ex.Key != nil {
		add("key_id", ex.Key.ID())
	}
	add("dialect", string(ex.Operation.Dialect))
	add("model", ex.ModelName())
	add("deployment", ex.Deployment)
	add("connector", ex.Connector)
	add("reason", ex.Reason)
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
	duration time.Duration
	user     string // id of the key
	loggers  []*zap.Logger
}

// writeAfter writes the entry when all handlers have returned, as Caddy does:
// those around this one may add fields on the way out. The server ends the
// request's context then. It has ended before if the client is gone.
func (e *accessEntry) writeAfter(ctx context.Context) {
	if ctx.Err() != nil {
		e.write(ctx)
		return
	}
	context.AfterFunc(ctx, func() { e.write(ctx) })
}

// write writes the entry, with Caddy's fields in Caddy's order.
func (e *accessEntry) write(ctx context.Context) {
	level := zapcore.InfoLevel
	if e.recorder.Status() >= http.StatusInternalServerError {
		level = zapcore.ErrorLevel
	}
	if name, ok := caddyhttp.GetVar(ctx, caddyhttp.LogLevelVar).(string); ok {
		if chosen, err := zapcore.ParseLevel(name); err == nil && chosen >= zapcore.DebugLevel && chosen <= zapcore.ErrorLevel {
			level = chosen
		}
	}
	fields := append([]zap.Field{
		zap.Object("request", e.request),
		zap.Int64("bytes_read", e.body.n),
		zap.String("user_id", e.user),
		zap.Duration("duration", e.duration),
		zap.Int("size", e.recorder.Size()),
		zap.Int("status", e.recorder.Status()),
		zap.Object("resp_headers", caddyhttp.LoggableHTTPHeader{
			Header: e.recorder.Header(), ShouldLogCredentials: e.request.ShouldLogCredentials,
		}),
	}, extraLogFields(ctx)...)
	for _, logger := range e.loggers {
		logger.Log(level, "handled request", fields...)
	}
}

// extraLogFields are the fields that handlers have added to Caddy's entry:
// those of tracing and log_append, and ours. Caddy has no function that returns
// them, so they are read from the struct; none if it has changed.
func extraLogFields(ctx context.Context) []zap.Field {
	extra, ok := ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
	if !ok {
		return nil
	}
	fields := reflect.ValueOf(extra).Elem().FieldByName("fields")
	if !fields.IsValid() || fields.Type() != reflect.TypeFor[[]zap.Field]() {
		return nil
	}
	return *(*[]zap.Field)(fields.Addr().UnsafePointer())
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
