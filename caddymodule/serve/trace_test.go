package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// A tracedGateway records the spans of its requests.
type tracedGateway struct {
	*testGateway
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer
}

func newTracedGateway(t *testing.T) *tracedGateway {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	return &tracedGateway{newGateway(t, 64<<20), spans, provider.Tracer("test")}
}

// post sends a request below a span, which it returns with the spans of the attempts, in order.
func (g *tracedGateway) post(path, body string) (server trace.SpanContext, spans []sdktrace.ReadOnlySpan) {
	before := len(g.spans.Ended())
	ctx, span := g.tracer.Start(context.Background(), "server", trace.WithSpanKind(trace.SpanKindServer))
	g.send(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)).WithContext(ctx))
	span.End()
	ended := g.spans.Ended()[before:]
	return span.SpanContext(), ended[:len(ended)-1]
}

// described returns a span's name, attributes, events and status.
func described(s sdktrace.ReadOnlySpan) (described []string) {
	described = append(described, s.Name(), "status "+s.Status().Code.String())
	for _, a := range s.Attributes() {
		described = append(described, string(a.Key)+"="+a.Value.String())
	}
	for _, e := range s.Events() {
		described = append(described, "event "+e.Name)
	}
	return described
}

// lacks returns the wanted texts that a span lacks.
func lacks(s sdktrace.ReadOnlySpan, want ...string) []string {
	got := described(s)
	return slices.DeleteFunc(want, func(w string) bool {
		return slices.ContainsFunc(got,
			func(g string) bool { return g == w || strings.HasSuffix(w, "=") && strings.HasPrefix(g, w) })
	})
}

func TestSpan(t *testing.T) {
	g := newTracedGateway(t)
	var header http.Header
	g.answer = func(r *http.Request) *http.Response {
		header = r.Header
		return upstreamAnswer("text/event-stream",
			strings.NewReader(`data: {"id":"chatcmpl-7","choices":[{"index":0,"delta":{"content":"secret answer"}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}

data: [DONE]

`), -1)
	}
	server, spans := g.post("/v1/chat/completions",
		`{"model":"m","stream":true,"max_tokens":99,"messages":[{"role":"user","content":"secret prompt"}]}`)
	if len(spans) != 1 {
		t.Fatalf("%d spans", len(spans))
	}
	s := spans[0]
	d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
	if missing := lacks(s, "chat m", "status Unset", "gen_ai.operation.name=chat", "gen_ai.provider.name=openai",
		"gen_ai.request.model=m",
		"gen_ai.request.stream=true", "gen_ai.request.max_tokens=99", "gen_ai.response.model=up",
		"gen_ai.usage.input_tokens=7", "gen_ai.usage.output_tokens=3",
		"gen_ai.usage.cache_read.input_tokens=4", "gen_ai.response.id=chatcmpl-7", `gen_ai.response.finish_reasons=["stop"]`,
		"gen_ai.response.time_to_first_chunk=", "postern.key_id="+g.key.ID(), "postern.request_id=",
		"postern.connector="+d.Connectors[0], "server.address=box", "postern.dialect=chat", "postern.tokens_estimated=false",
		"event sent", "event first_chunk"); len(missing) > 0 {
		t.Errorf("the span lacks %q: %q", missing, described(s))
	}
	if s.SpanKind() != trace.SpanKindClient || s.Parent().SpanID() != server.SpanID() ||
		s.SpanContext().TraceID() != server.TraceID() {
		t.Errorf("a span of kind %v below %v", s.SpanKind(), s.Parent().SpanID())
	}
	if want := fmt.Sprintf("00-%s-%s-01", s.SpanContext().TraceID(),
		s.SpanContext().SpanID()); header.Get("Traceparent") != want {
		t.Errorf("traceparent %q, want %q", header.Get("Traceparent"), want)
	}
	for _, text := range described(s) {
		if strings.Contains(text, "secret") || strings.Contains(text, g.secret) {
			t.Errorf("the span has %q", text)
		}
	}
}

// Each attempt has a span, with the reason of a failure.
func TestSpanOfEachTry(t *testing.T) {
	g := newTracedGateway(t)
	effort := `{"model":"m","input":"hi","reasoning":{"effort":"high"}}`
	var parents []string
	g.answer = func(r *http.Request) *http.Response {
		parents = append(parents, r.Header.Get("Traceparent"))
		if len(parents) == 1 {
			return respond(400, "application/json", `{"error":{"message":"m does not support thinking"}}`)
		}
		return respond(200, "application/json", completionOf("hi"))
	}
	_, spans := g.post("/v1/responses", effort)
	if len(spans) != 2 || len(parents) != 2 || parents[0] == parents[1] {
		t.Fatalf("%d spans, parents %q", len(spans), parents)
	}
	if missing := lacks(spans[0], "status Error", "error.type=client_400", "event sent"); len(missing) > 0 {
		t.Errorf("the first lacks %q: %q", missing, described(spans[0]))
	}
	if missing := lacks(spans[1], "status Unset", "event sent", "gen_ai.usage.input_tokens=1",
		`gen_ai.response.finish_reasons=["stop"]`); len(missing) > 0 {
		t.Errorf("the second lacks %q: %q", missing, described(spans[1]))
	}

	// The only connector is offline.
	g.connect(failing{fakeTunnel{g.testGateway}})
	_, spans = g.post("/v1/chat/completions", requests["/v1/chat/completions"])
	if len(spans) != 2 || len(lacks(spans[0], "error.type=failed_502")) > 0 ||
		len(lacks(spans[1], "error.type=failed_502")) > 0 {
		t.Errorf("without a model server: %d spans", len(spans))
		for _, s := range spans {
			t.Log(described(s))
		}
	}
}

// A request that goes to the fallback has a span for each deployment.
func TestSpanOfFallback(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	g := &tracedGateway{withFallback(t, store.ChatModel), spans, provider.Tracer("test")}
	_, tries := g.post("/v1/chat/completions", requests["/v1/chat/completions"])
	if len(tries) != 2 || len(lacks(tries[0], "gen_ai.request.model=m", "error.type=failed_503")) > 0 ||
		len(lacks(tries[1], "gen_ai.request.model=m2", "status Unset", "event sent")) > 0 {
		for _, s := range tries {
			t.Error(described(s))
		}
	}
}

// A failing tunnel's connector does not reach its model server.
type failing struct{ fakeTunnel }

func (failing) Send(*http.Request, string) (*http.Response, error) {
	return nil, errors.Join(link.ErrUpstreamDown)
}

// The span of a request has its time in the queue.
func TestSpanOfQueuedRequest(t *testing.T) {
	g := newTracedGateway(t)
	d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
	d.MaxConcurrency = 1
	if _, err := g.backend.Store.SetDeployment(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	answer := func(*http.Request) *http.Response { return respond(200, "application/json", completionOf("hi")) }
	started, proceed := make(chan struct{}), make(chan struct{})
	g.answer = func(r *http.Request) *http.Response {
		close(started)
		<-proceed
		return answer(r)
	}
	first := make(chan struct{})
	go func() {
		defer close(first)
		g.testGateway.post("/v1/chat/completions", requests["/v1/chat/completions"])
	}()
	<-started
	g.answer = answer
	second := make(chan []sdktrace.ReadOnlySpan)
	go func() {
		_, spans := g.post("/v1/chat/completions", requests["/v1/chat/completions"])
		second <- spans
	}()
	wait.Until(t, "the second request is queued", func() bool {
		_, n := g.backend.Turns.Load(store.DefaultAccount, "m")
		return n > 0
	})
	close(proceed)
	<-first
	if spans := <-second; len(spans) != 1 ||
		len(lacks(spans[0], "event queued", "postern.queue_ms=", "event sent")) > 0 {
		t.Errorf("%d spans: %q", len(spans), described(spans[0]))
	}
}

// Without tracing, the client's context passes, and spans cost nothing.
func TestUntraced(t *testing.T) {
	g := newGateway(t, 64<<20)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var got string
	g.answer = func(r *http.Request) *http.Response {
		got = r.Header.Get("Traceparent")
		return respond(200, "application/json", completionOf("hi"))
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(requests["/v1/chat/completions"]))
	r.Header.Set("Traceparent", parent)
	w := httptest.NewRecorder()
	if g.send(w, r); got != parent {
		t.Errorf("traceparent %q, want the client's; %s", got, w.Body)
	}
	_, _ = io.Copy(io.Discard, w.Body)
	ctx, h := t.Context(), http.Header{}
	ex := &Exchange{authenticated: authenticated{Key: g.key}, translated: translated{Deployment: "m"}}
	m, info := &modelRequest{exchange: ex}, new(dialect.AnswerInfo)
	if n := testing.AllocsPerRun(100, func() {
		ex.span.begin(ctx, ex)
		ex.span.limited(time.Second)
		ex.span.queued(time.Second)
		ex.span.send(m, "up", h)
		ex.span.retry(ctx, ex, nil)
		ex.span.end(ex.Usage, info, Ending{})
	}); n > 0 {
		t.Errorf("%v allocations without tracing", n)
	}
}
