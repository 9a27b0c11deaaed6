package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

const mib = 1 << 20

// chatOf returns a chat request of exactly size bytes.
func chatOf(model string, size int) string {
	body := fmt.Sprintf(`{"messages":[{"role":"user","content":"%%s"}],"model":%s}`, harness.Quote(model))
	return fmt.Sprintf(body, strings.Repeat("y", size-len(body)+2))
}

// A request of 32 MiB, the default limit, and an answer of 20 MiB arrive byte for byte.
// A larger request is refused, announced or not.
func testLargeMessages(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	long := strings.Repeat("0123456789abcdef", 20*mib/16)
	r.serve(t, "m", upstream.JSON(upstream.Completion(up("m"), long)))
	body := chatOf("m", 32*mib)
	if a, want := r.Post(t, body), upstream.Completion("m", long); a.Status != 200 || a.Err != nil || a.Body != want {
		t.Fatalf("status %d, error %v, %d bytes, want %d", a.Status, a.Err, len(a.Body), len(want))
	}
	if want := strings.Replace(body, `"model":"m"}`, `"model":"up-m"}`, 1); string(r.up.Last(t).Body) != want {
		t.Errorf("the upstream received %d other bytes, want %d", len(r.up.Last(t).Body), len(want))
	}
	r.Post(t, body+" ").ExpectError(t, 413, "invalid_request_error", "request_too_large")

	req := r.Request(t.Context(), t, http.MethodPost, "/v1/chat/completions", body+" ")
	req.ContentLength = -1 // chunked: the size shows only while reading
	if a, err := r.Send(req); err != nil {
		t.Error(err)
	} else {
		a.ExpectError(t, 413, "invalid_request_error", "request_too_large")
	}
	if n := len(r.up.Requests()); n != 1 {
		t.Errorf("the upstream received %d requests, want 1", n)
	}
}
