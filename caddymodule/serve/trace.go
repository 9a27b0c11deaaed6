package serve

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/connector/version"
)

// genAIProvider is the protocol of the model servers, in OpenTelemetry's semantic conventions
// for generative AI.
const genAIProvider = "openai"

// tracerName is the scope of the spans.
const tracerName = "github.com/postern-dev/postern"

// attemptSpan is the span of an attempt to send a request to a model server, if Caddy records the
// request. It contains neither content nor secrets.
type attemptSpan struct {
	span trace.Span // of the current attempt, nil if it is not recorded
	sent time.Time
}

// recording reports whether the attempt is recorded.
func (t *attemptSpan) recording() bool { return t.span != nil }

// begin begins the span of an attempt.
func (t *attemptSpan) begin(ctx context.Context, ex *Exchange) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return
	}
	tracer := parent.TracerProvider().Tracer(tracerName, trace.WithInstrumentationVersion(version.Number()))
	operation := ex.Operation.GenAI()
	_, t.span = tracer.Start(ctx, operation+" "+ex.Deployment, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			attribute.String("gen_ai.operation.name", operation),
			attribute.String("gen_ai.provider.name", genAIProvider),
			attribute.String("gen_ai.request.model", ex.Deployment),
			attribute.Bool("gen_ai.request.stream", ex.Streamed),
			attribute.String("postern.dialect", string(ex.Operation.Dialect)),
			attribute.String("postern.key_id", ex.Key.ID()),
			attribute.String("postern.request_id", ex.RequestID),
		))
	t.sent = time.Time{}
}

// limited records that the request waited for a limit of concurrency.
func (t *attemptSpan) limited(waited time.Duration) {
	if t.span != nil {
		t.span.SetAttributes(attribute.Int64("postern.limit_wait_ms", waited.Milliseconds()))
	}
}

// queued records that the request waited in the line of its deployment.
func (t *attemptSpan) queued(waited time.Duration) {
	if t.span == nil {
		return
	}
	t.span.AddEvent("queued", trace.WithTimestamp(time.Now().Add(-waited)))
	t.span.SetAttributes(attribute.Int64("postern.queue_ms", waited.Milliseconds()))
}

// send records that the request is being sent, and makes the attempt's span the parent of the
// spans of the model server.
func (t *attemptSpan) send(m *modelRequest, model string, h http.Header) {
	if t.span == nil {
		return
	}
	ex := m.exchange
	server := ex.Connector
	if c, ok := ex.backend.Store.Connector(ex.Connector); ok && c.Name != "" {
		server = c.Name
	}
	t.sent = time.Now()
	t.span.AddEvent("sent", trace.WithTimestamp(t.sent))
	t.span.SetAttributes(
		attribute.String("gen_ai.response.model", model),
		attribute.String("server.address", server),
		attribute.String("postern.connector", ex.Connector),
	)
	if limit := m.call.OutputLimit(); limit > 0 {
		t.span.SetAttributes(attribute.Int64("gen_ai.request.max_tokens", limit))
	}
	h.Del("Tracestate")
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), t.span), propagation.HeaderCarrier(h))
}

// retry ends the span of an attempt that failed, and begins the next one.
func (t *attemptSpan) retry(ctx context.Context, ex *Exchange, e *dialect.Error) {
	if t.span == nil {
		return
	}
	t.fail(e.Class(), e.HTTPStatus(ex.Operation.Dialect))
	t.span.End()
	t.begin(ctx, ex)
}

// end ends the span of the last attempt.
func (t *attemptSpan) end(u dialect.Usage, info *dialect.AnswerInfo, e Ending) {
	if t.span == nil {
		return
	}
	if !e.First.IsZero() && !t.sent.IsZero() {
		t.span.AddEvent("first_chunk", trace.WithTimestamp(e.First))
		t.span.SetAttributes(attribute.Float64("gen_ai.response.time_to_first_chunk", e.First.Sub(t.sent).Seconds()))
	}
	for _, n := range [...]struct {
		name   string
		tokens int64
	}{
		{"input_tokens", u.PromptTokens},
		{"cache_read.input_tokens", u.CachedTokens},
		{"output_tokens", u.CompletionTokens},
		{"reasoning.output_tokens", u.ReasoningTokens},
	} {
		if n.tokens > 0 {
			t.span.SetAttributes(attribute.Int64("gen_ai.usage."+n.name, n.tokens))
		}
	}
	t.span.SetAttributes(attribute.Bool("postern.tokens_estimated", u.Estimated))
	if info.ID != "" {
		t.span.SetAttributes(attribute.String("gen_ai.response.id", info.ID))
	}
	if len(info.FinishReasons) > 0 {
		t.span.SetAttributes(attribute.StringSlice("gen_ai.response.finish_reasons", info.FinishReasons))
	}
	if e.Class != "" {
		t.fail(e.Class, e.Logged)
	}
	t.span.End()
}

// fail records an error.
func (t *attemptSpan) fail(class dialect.Class, status int) {
	t.span.SetStatus(codes.Error, "")
	t.span.SetAttributes(attribute.String("error.type", errorType(class, status)))
}

// errorType returns the type of an error: the outcome of the request and the status.
func errorType(class dialect.Class, status int) string {
	return string(outcomeOf(class)) + "_" + strconv.Itoa(status)
}
