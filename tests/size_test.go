package tests

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

const mib = 1 << 20

// chatOf returns a chat request of exactly size bytes.
func chatOf(model string, size int) string {
	body := fmt.Sprintf(`{"messages":[{"role":"user","content":"%%s"}],"model":%s}`, harness.Quote(model))
	return fmt.Sprintf(body, strings.Repeat("y", size-len(body)+2))
}

// A request of 32 MiB, the default limit, arrives byte for byte; one byte more
// is refused, announced or not.
func TestLargestRequest(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "m", upstream.Echo)
	body := chatOf("m", 32*mib)
	a := r.Post(t, body)
	if a.Status != 200 {
		t.Fatalf("status %d, %s", a.Status, clip(a.Body))
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

func TestMaxBody(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{Translator: serve.Translator{MaxBody: 10 << 10}})
	r.serve(t, "m", upstream.Echo)
	if a := r.Post(t, chatOf("m", 10<<10)); a.Status != 200 {
		t.Errorf("a body of max_body: status %d, %s", a.Status, a.Body)
	}
	r.Post(t, chatOf("m", 10<<10+1)).ExpectError(t, 413, "invalid_request_error", "request_too_large")
}

// Compressed requests are decoded, within max_body; the upstream sees none of it.
func TestCompressedRequests(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{Translator: serve.Translator{MaxBody: 1 << 20}})
	r.serve(t, "m", upstream.Echo)
	for coding, encode := range map[string]func(t *testing.T, s string) string{"gzip": gzipped, "zstd": zstandard} {
		t.Run(coding, func(t *testing.T) {
			body := chatOf("m", mib)
			a := r.Post(t, encode(t, body), "Content-Encoding: "+coding)
			if a.Status != 200 {
				t.Fatalf("status %d, %s", a.Status, a.Body)
			}
			got := r.up.Last(t)
			if want := strings.Replace(body, `"model":"m"}`, `"model":"up-m"}`, 1); string(got.Body) != want {
				t.Errorf("the upstream received %d other bytes, want %d", len(got.Body), len(want))
			}
			if v := got.Header.Get("Content-Encoding"); v != "" {
				t.Errorf("the upstream was told of encoding %s", v)
			}
			r.Post(t, encode(t, chatOf("m", mib+1)), "Content-Encoding: "+coding).
				ExpectError(t, 413, "invalid_request_error", "request_too_large")
			// 64 MiB that arrive as a few KB: decoding must stop at the limit.
			bomb := encode(t, strings.Repeat(" ", 64*mib))
			r.Post(t, bomb, "Content-Encoding: "+coding).ExpectError(t, 413, "invalid_request_error", "request_too_large")
			broken := encode(t, body)
			a = r.Post(t, broken[:len(broken)/2], "Content-Encoding: "+coding)
			a.ExpectError(t, 400, "invalid_request_error", "")
		})
	}
	if a := r.Post(t, chatOf("m", 200), "Content-Encoding: br"); a.Status/100 != 4 {
		t.Errorf("an unknown coding: status %d, %s", a.Status, a.Body)
	} else {
		a.ErrorBody(t)
	}
}

func gzipped(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstandard(t *testing.T, s string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return string(w.EncodeAll([]byte(s), nil))
}

// A plain answer of 20 MiB arrives byte for byte.
func TestLargeAnswer(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	text := strings.Repeat("0123456789abcdef", 20*mib/16)
	r.serve(t, "big", upstream.JSON(upstream.Completion(up("big"), text)))
	a := r.Post(t, harness.Chat("big", ""))
	if want := upstream.Completion("big", text); a.Status != 200 || a.Err != nil || a.Body != want {
		t.Errorf("status %d, error %v, %d bytes, want %d", a.Status, a.Err, len(a.Body), len(want))
	}
}
