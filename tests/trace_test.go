package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// With Caddy's tracing, the span of a request is a child of Caddy's span, which is a child of the client's,
// and the parent of spans of the model server. The access log has the id of Caddy's span, wherever the key was
// sent.
func TestTracing(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{Lines: "log_append appended yes"}.Traced())
	r.serve(t, "m", upstream.Echo)
	anonymous := r.Gateway.Client(t, "")
	for i, header := range []string{"Authorization: Bearer " + r.APIKey, "X-Api-Key: " + r.APIKey} {
		const parent = "b7ad6b7169203331"
		trace := fmt.Sprintf("0af7651916cd43dd8448eb211c8031%02d", i)
		a := anonymous.Do(t, "POST", "/v1/chat/completions", harness.Chat("m", ""), header,
			"Traceparent: 00-"+trace+"-"+parent+"-01")
		if a.Status != 200 {
			t.Fatalf("status %d, %s", a.Status, a.Body)
		}
		server, client := r.Spans(t, trace)
		if client.Name != "chat m" || server.Name != "gateway" || server.Parent.SpanID != parent {
			t.Errorf("%s: the span %+v is below %+v", header[:9], client, server)
		}
		if got, want := r.up.Last(t).Header.Get("Traceparent"), "00-"+trace+"-"+client.SpanContext.SpanID+"-01"; got != want {
			t.Errorf("the model server got traceparent %q, want %q", got, want)
		}
		var entry map[string]any
		harness.Poll(t, limit, "the access log's entry", func(context.Context) error {
			for line := range strings.Lines(r.Gateway.Process.Log()) {
				if strings.Contains(line, `"http.log.access`) && strings.Contains(line, trace) {
					return json.Unmarshal([]byte(line), &entry)
				}
			}
			return fmt.Errorf("there is none")
		})
		if entry["traceID"] != trace || entry["spanID"] != server.SpanContext.SpanID || entry["key_id"] != r.keyID ||
			i == 0 && entry["appended"] != "yes" {
			t.Errorf("%s: the access log's entry is %v", header[:9], entry)
		}
	}
}
