package caddymodule

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/connector/panics"
)

// accessLog adds the fields of an exchange to the access log, if it is enabled.
//
// Caddy redacts Authorization and cookies, but no other header and nothing in the
// URI, and it copies the request before any handler runs. If a request carries
// another secret, Caddy's entry is skipped and a redacted one is written instead.
type accessLog struct {
	logger *zap.Logger // http.log.access, like Caddy's own
	own    *slog.Logger
}

// newAccessLog returns the log for a handler of a configuration.
func newAccessLog(ctx caddy.Context) accessLog {
	return accessLog{ctx.Logger(new(caddyhttp.App)).Named("log.access"), ctx.Slogger()}
}

// begin must be called before a request is served. Serve the request with the
// returned writer, then call end.
func (l accessLog) begin(w http.ResponseWriter, r *http.Request, ex *serve.Exchange) (
	_ http.ResponseWriter, end func(),
) {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Logs == nil {
		return w, func() {}
	}
	skip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.LogSkipVar).(bool)
	if skip || !serve.CarriesSecret(r) {
		return w, func() { addLogFields(r, ex) }
	}
	caddyhttp.SetVar(r.Context(), caddyhttp.LogSkipVar, true)
	e := &accessEntry{
		ctx: r.Context(), request: serve.WithoutSecrets(r), body: &countingReader{ReadCloser: r.Body},
		recorder: caddyhttp.NewResponseRecorder(w, nil, nil), credentials: server.Logs.ShouldLogCredentials,
	}
	r.Body = e.body
	return e.recorder, func() {
		addLogFields(r, ex)
		e.duration = time.Since(ex.Start)
		if ex.Key != nil {
			e.user = ex.Key.ID()
		}
		for _, name := range loggerNames(server.Logs, r) {
			e.loggers = append(e.loggers, l.logger.Named(name)) // the default for ""
		}
		// Write the entry after all handlers have returned, as Caddy does: outer
		// handlers may still add fields. The server then cancels the context, unless
		// the client has disconnected before.
		if e.ctx.Err() != nil {
			e.write()
			return
		}
		context.AfterFunc(e.ctx, func() {
			defer panics.Recover(l.own, "writing an entry of the access log")
			e.write()
		})
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
	add("outcome", string(ex.Outcome))
	add("reason", ex.Reason)
}

// accessEntry is a log entry that is not written yet.
type accessEntry struct {
	ctx         context.Context // of the request
	request     *http.Request
	body        *countingReader
	recorder    caddyhttp.ResponseRecorder
	credentials bool // log credentials, too
	duration    time.Duration
	user        string // key id
	loggers     []*zap.Logger
}

// write writes the entry, with Caddy's fields in Caddy's order.
func (e *accessEntry) write() {
	level := zapcore.InfoLevel
	if e.recorder.Status() >= http.StatusInternalServerError {
		level = zapcore.ErrorLevel
	}
	if name, ok := caddyhttp.GetVar(e.ctx, caddyhttp.LogLevelVar).(string); ok {
		if chosen, err := zapcore.ParseLevel(name); err == nil && chosen >= zapcore.DebugLevel &&
			chosen <= zapcore.ErrorLevel {
			level = chosen
		}
	}
	fields := append([]zap.Field{
		zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: e.request, ShouldLogCredentials: e.credentials}),
		zap.Int64("bytes_read", e.body.n),
		zap.String("user_id", e.user),
		zap.Duration("duration", e.duration),
		zap.Int("size", e.recorder.Size()),
		zap.Int("status", e.recorder.Status()),
		zap.Object("resp_headers", caddyhttp.LoggableHTTPHeader{
			Header: serve.HeaderWithoutSecrets(e.recorder.Header()), ShouldLogCredentials: e.credentials,
		}),
	}, extraLogFields(e.ctx)...)
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
	if names, ok := logs.LoggerNames[strings.ToLower(host)]; ok {
		return names
	}
	for pattern, names := range logs.LoggerNames {
		if certmagic.MatchWildcard(host, pattern) {
			return names
		}
	}
	skipped := func(pattern string) bool { return certmagic.MatchWildcard(host, pattern) }
	if logs.SkipUnmappedHosts || slices.ContainsFunc(logs.SkipHosts, skipped) {
		return nil
	}
	return []string{logs.DefaultLoggerName}
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
