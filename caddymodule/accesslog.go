package caddymodule

import (
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/postern-dev/postern/caddymodule/serve"
)

// accessLog adds the fields of an exchange to the access log, if it is enabled.
//
// Caddy redacts Authorization and cookies, but no other header and nothing in the
// URI, and it copies the request before any handler runs. If a request carries
// another secret, Caddy's entry is skipped and a shorter, redacted one is written
// instead.
type accessLog struct {
	logger *zap.Logger // http.log.access, like Caddy's own
	// hidden returns the header that the entry of a request does not contain, "" for none; nil: always none. With a
	// header of Open WebUI, the entry contains none of these, which name the person, too.
	hidden func(http.Header) string
}

const openWebUI = "X-Openwebui-"

// newAccessLog returns the log for a handler of a configuration.
func newAccessLog(ctx caddy.Context) accessLog {
	return accessLog{logger: ctx.Logger(new(caddyhttp.App)).Named("log.access")}
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
	hidden := ""
	if l.hidden != nil {
		hidden = l.hidden(r.Header)
	}
	if skip || !serve.CarriesSecret(r) && hidden == "" {
		return w, func() {
			if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
				for _, field := range logFields(ex) {
					extra.Set(field)
				}
			}
		}
	}
	caddyhttp.SetVar(r.Context(), caddyhttp.LogSkipVar, true)
	shown := caddyhttp.LoggableHTTPRequest{
		Request: serve.WithoutSecrets(r), ShouldLogCredentials: server.Logs.ShouldLogCredentials,
	}
	maps.DeleteFunc(shown.Header, func(name string, _ []string) bool {
		return name == hidden || strings.HasPrefix(hidden, openWebUI) && strings.HasPrefix(name, openWebUI)
	})
	recorder := caddyhttp.NewResponseRecorder(w, nil, nil)
	return recorder, func() { l.write(server.Logs, shown, recorder, ex) }
}

// write writes the entry of a request with a secret, without the answer's header and the fields of handlers
// such as log_append, which Caddy does not export.
func (l accessLog) write(
	logs *caddyhttp.ServerLogConfig, shown caddyhttp.LoggableHTTPRequest, recorder caddyhttp.ResponseRecorder,
	ex *serve.Exchange,
) {
	level := zapcore.InfoLevel
	if recorder.Status() >= http.StatusInternalServerError {
		level = zapcore.ErrorLevel
	}
	fields := append([]zap.Field{
		zap.Object("request", shown), zap.Duration("duration", time.Since(ex.Start)), zap.Int("size", recorder.Size()),
		zap.Int("status", recorder.Status()),
	}, logFields(ex)...)
	if span := trace.SpanContextFromContext(shown.Context()); span.IsValid() { // as Caddy's tracing names them
		fields = append(fields, zap.Stringer("traceID", span.TraceID()), zap.Stringer("spanID", span.SpanID()))
	}
	for _, name := range loggerNames(logs, shown.Request) {
		l.logger.Named(name).Log(level, "handled request", fields...) // the default for ""
	}
}

// logFields returns the fields of an exchange.
func logFields(ex *serve.Exchange) (fields []zap.Field) {
	add := func(name, value string) {
		if value != "" {
			fields = append(fields, zap.String(name, value))
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
	return fields
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
