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

// accessLog adds the fields of an exchange to the access log, if it is enabled.
//
// Caddy redacts Authorization and cookies, but no other header and nothing in the
// URI, and it copies the request before any handler runs. If a request carries
// another secret, Caddy's entry is skipped and a redacted one is written instead.
type accessLog struct {
	logger *zap.Logger // http.log.access, like Caddy's own
}

// newAccessLog returns the log for a handler of a configuration.
func newAccessLog(ctx caddy.Context) accessLog {
	return accessLog{ctx.Logger(new(caddyhttp.App)).Named("log.access")}
}

// begin must be called before a request is served. Serve the request with the
// returned writer, then call end.
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

// named returns the logger of a name set in a site's log directive, or the
// default logger for "".
func (l accessLog) named(name string) *zap.Logger {
	if name == "" {
		return l.logger
	}
	return l.logger.Named(name)
}

// accessEntry is a log entry that is not written yet.
type accessEntry struct {
	request  caddyhttp.LoggableHTTPRequest
	body     *countingReader
	recorder caddyhttp.ResponseRecorder
	duration time.Duration
	user     string // key id
	loggers  []*zap.Logger
}

// writeAfter writes the entry after all handlers have returned, as Caddy does:
// outer handlers may still add fields. The server cancels the request's context
// at that point; it is canceled earlier if the client has disconnected.
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

// extraLogFields returns the fields that handlers have added to Caddy's entry,
// including those of tracing and log_append. Caddy does not export them, so they
// are read by reflection. It returns nil if the struct has changed.
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

// loggerNames returns the names of the loggers to which Caddy would write a
// request's entry, nil if it would not log the request.
func loggerNames(logs *caddyhttp.ServerLogConfig, r *http.Request) []string {
	// Set for this request by the log_name directive.
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

// hostEntry returns the entry of a host, matched by name or by wildcard.
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

// hostMatches reports whether a host matches a name. A leading "*" label in the
// name matches any single label.
func hostMatches(name, host string) bool {
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		_, parent, found := strings.Cut(host, ".")
		return found && strings.EqualFold(rest, parent)
	}
	return strings.EqualFold(name, host)
}

// countingReader counts the bytes read.
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
