package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Traced returns the options of a gateway that prints the spans of its requests.
func (o Options) Traced() Options {
	o.Lines += "\ntracing {\n span gateway\n}"
	o.Env = append(o.Env, "OTEL_TRACES_EXPORTER=console", "OTEL_BSP_SCHEDULE_DELAY=20", "OTEL_PROPAGATORS=tracecontext")
	return o
}

// A Span is a span that a gateway has printed.
type Span struct {
	Name                string
	SpanKind            int // as the SDK prints it: 2 is SERVER, 3 CLIENT
	SpanContext, Parent struct{ TraceID, SpanID string }
}

// Spans returns Caddy's span of a request and ours, which must be its only child.
func (g *Gateway) Spans(t testing.TB, trace string) (server, client Span) {
	t.Helper()
	Poll(t, Patience, "the spans of a request", func(context.Context) error {
		spans := map[int][]Span{}
		for line := range strings.Lines(g.Process.Log()) {
			var s Span
			if json.Unmarshal([]byte(line), &s) == nil && s.SpanContext.TraceID == trace {
				spans[s.SpanKind] = append(spans[s.SpanKind], s)
			}
		}
		if len(spans[2]) != 1 || len(spans[3]) != 1 {
			return fmt.Errorf("there are %+v", spans)
		}
		server, client = spans[2][0], spans[3][0]
		return nil
	})
	if client.Parent.SpanID != server.SpanContext.SpanID {
		t.Errorf("the span %+v is not below %+v", client, server)
	}
	return server, client
}
