package serve

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// codedBody is the body of an answer whose decoder needs memory.
type codedBody struct{ io.ReadCloser }

func (codedBody) DecoderMemory() int64 { return 10 << 20 }

// atEnd is an empty reader that calls a function.
type atEnd func()

func (f atEnd) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

// Memory is reserved for the decoder of a compressed answer, and of a compressed error.
func TestDecodersTakeMemory(t *testing.T) {
	g := newGateway(t, 64<<20)
	for path, body := range requests {
		for _, status := range []int{http.StatusOK, http.StatusBadRequest} {
			var reserved int64
			g.answer = func(*http.Request) *http.Response {
				text := completionOf("hi")
				answer := upstreamAnswer("application/json", io.MultiReader(strings.NewReader(text), atEnd(func() {
					reserved = max(reserved, g.backend.Memory.Stats().Reserved)
				})), -1)
				answer.StatusCode = status
				answer.Body = codedBody{answer.Body}
				return answer
			}
			if w := g.post(path, body); w.Code != status || reserved < 10<<20 {
				t.Errorf("%s: status %d, while %d bytes are reserved", path, w.Code, reserved)
			}
			g.returned(t)
			g.backend.Memory.Resize(8 << 20)
			isFull(t, path, g.post(path, body))
			g.backend.Memory.Resize(64 << 20)
		}
	}
}

// A small body may need a large window, for which memory is reserved until the body was read.
func TestWindowsTakeMemory(t *testing.T) {
	for _, window := range []int{8 << 20, 16 << 20} {
		var body bytes.Buffer
		w, err := zstd.NewWriter(&body, zstd.WithWindowSize(window))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("hello")); err != nil || w.Flush() != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		packed := bytes.Clone(body.Bytes())
		r, err := tunnel.Decoders["zstd"].Open(io.MultiReader(&body, atEnd(func() {
			runtime.GC()
			runtime.ReadMemStats(&after)
		})))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r); err == nil {
			t.Error("a body that is cut off is read as whole")
		}
		var reserved int64
		if _, derr := decompress(packed, "zstd", 32<<20, func(n int64) error { reserved = n; return nil }); derr == nil {
			t.Error("a body that is cut off is decompressed as whole")
		}
		if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > reserved {
			t.Errorf("a window of %d bytes: %d bytes are used, counted as %d", window, used, reserved)
		}
	}
}

// Memory is reserved for kept responses that a request refers to, however short the reference is.
func TestReferencesCountAsBody(t *testing.T) {
	g := newGateway(t, 1<<30)
	g.MaxBody = 1 << 20
	item := []byte(`{"id":"msg_1","type":"message","role":"user","content":"` + strings.Repeat("x", 3<<15) + `"}`)
	owner := kept.Owner{Account: store.DefaultAccount, Key: g.key.ID()}
	g.backend.completions.kept.View(owner, owner.Account, g.key.Scope()).Keep("resp_1",
		kept.Response{Model: "m", Body: []byte("{}"), Input: [][]byte{item}})
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
	}
	for n, status := range map[int]int{
		9: http.StatusOK, 11: http.StatusRequestEntityTooLarge,
		1000: http.StatusRequestEntityTooLarge,
	} {
		references := strings.Repeat(`,{"type":"item_reference","id":"msg_1"}`, n)
		w := g.post("/v1/responses",
			`{"model":"m","store":false,"previous_response_id":"resp_1","input":[`+references[1:]+`]}`)
		if w.Code != status {
			t.Errorf("%d references: status %d, %s", n, w.Code, clipped(w.Body.String()))
		}
	}
	g.returned(t)
}

// Memory is reserved for the items that a kept response adds to a request.
func TestKeptResponsesTakeMemory(t *testing.T) {
	g := newGateway(t, 32<<20)
	item := []byte(`{"id":"msg_1","type":"message","role":"user","content":"` + strings.Repeat("x", 7<<20) + `"}`)
	owner := kept.Owner{Account: store.DefaultAccount, Key: g.key.ID()}
	kept := kept.Response{Model: "m", Body: []byte("{}"), Input: [][]byte{item}}
	g.backend.completions.kept.View(owner, owner.Account, g.key.Scope()).Keep("resp_1", kept)
	for _, input := range []string{
		`"previous_response_id":"resp_1","input":"x"`,
		`"input":[{"type":"item_reference","id":"msg_1"}]`,
	} {
		for _, path := range []string{"/v1/responses", "/v1/responses/input_tokens"} {
			isFull(t, path, g.post(path, `{"model":"m",`+input+`}`))
		}
	}
	g.returned(t)
}
