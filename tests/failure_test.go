package tests

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// An upstream that ends before it has said anything: an error with a status.
func TestUpstreamDiesBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	for name, h := range map[string]upstream.Handler{
		"closes":           func(x *upstream.Exchange) { x.Die() },
		"resets":           func(x *upstream.Exchange) { x.Reset() },
		"half-a-head":      func(x *upstream.Exchange) { x.Write("HTTP/1.1 200 OK\r\nContent-Ty"); x.Die() },
		"not-http":         func(x *upstream.Exchange) { x.Write("SSH-2.0-OpenSSH_9.2\r\n"); x.Die() },
		"closes-later":     func(x *upstream.Exchange) { x.Sleep(300 * time.Millisecond); x.Die() },
		"half-an-answer":   func(x *upstream.Exchange) { x.Head(200, "Content-Length: 100"); x.Write(`{"choices":[`); x.Die() },
		"half-a-chunk":     func(x *upstream.Exchange) { x.Head(200, "Transfer-Encoding: chunked"); x.Write("64\r\n{"); x.Die() },
		"no-final-chunk":   func(x *upstream.Exchange) { x.Head(200, "Transfer-Encoding: chunked"); x.Chunk(`{"a":1}`); x.Die() },
		"reset-in-answer":  func(x *upstream.Exchange) { x.Head(200, "Content-Length: 100"); x.Write(`{`); x.Reset() },
		"reset-after-head": func(x *upstream.Exchange) { x.Head(200, "Content-Length: 100"); x.Reset() },
	} {
		t.Run(name, func(t *testing.T) {
			r.serve(t, name, h)
			for _, more := range []string{"", `,"stream":true`} {
				a := r.Post(t, harness.Chat(name, more))
				a.ExpectError(t, http.StatusBadGateway, "server_error", "upstream_unreachable")
				if strings.Contains(a.Body, strings.TrimPrefix(r.up.URL, "http://")) {
					t.Errorf("the error tells the client the upstream's address: %s", a.Body)
				}
			}
		})
	}
	t.Run("down", func(t *testing.T) {
		con := r.Connector(t, "down", "http://"+harness.FreeAddr(t))
		r.Deploy(t, "down", con.ID, "", "")
		a := r.Post(t, harness.Chat("down", ""))
		a.ExpectError(t, http.StatusBadGateway, "server_error", "upstream_unreachable")
	})
}

// An upstream that breaks off a request that came over a used connection may have
// worked on it: neither it nor that of another connector gets the request again.
func TestRequestsAreNotRepeated(t *testing.T) {
	t.Parallel()
	p := newPair(t, harness.StartInProcess(t, inprocess.Options{}))
	for _, name := range []string{"a", "b"} {
		p.Deploy(t, "only-"+name, name, "", "")
	}
	p.handle("", upstream.JSON(upstream.Completion("m", "ok")))
	later := 200 * time.Millisecond
	for name, h := range map[string]upstream.Handler{
		"closes":       func(x *upstream.Exchange) { x.Die() },
		"resets":       func(x *upstream.Exchange) { x.Reset() },
		"closes-later": func(x *upstream.Exchange) { x.Sleep(later); x.Die() },
		"resets-later": func(x *upstream.Exchange) { x.Sleep(later); x.Reset() },
	} {
		p.deploy(t, name, 0)
		p.handle(name, h)
		body := func(rest string) string { return fmt.Sprintf(`{"model":%q,%s}`, name, rest) }
		for path, request := range map[string]string{
			"/v1/chat/completions": body(`"messages":[{"role":"user","content":"hi"}]`),
			"/v1/messages":         body(`"max_tokens":9,"messages":[{"role":"user","content":"hi"}]`),
			"/v1/responses":        body(`"input":"hi"`),
		} {
			for _, model := range []string{"only-a", "only-b"} { // leave connections to be used again
				if a := p.Post(t, harness.Chat(model, "")); a.Status != 200 {
					t.Fatalf("%s: status %d, %s", model, a.Status, a.Body)
				}
			}
			before := p.received()
			if a := p.Do(t, http.MethodPost, path, request); a.Status != http.StatusBadGateway {
				t.Errorf("%s %s: status %d, %s", name, path, a.Status, a.Body)
			}
			if after := p.received(); after[0]+after[1]-before[0]-before[1] != 1 {
				t.Errorf("%s %s: the upstreams received %v, and before %v", name, path, after, before)
			}
		}
	}
}

// An upstream that ends in the middle of a stream: what it said arrives, then
// an error event, and never [DONE].
func TestUpstreamDiesInTheStream(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	for name, end := range map[string]func(x *upstream.Exchange){
		"closes":                func(x *upstream.Exchange) { x.Die() },
		"resets":                func(x *upstream.Exchange) { x.Reset() },
		"ends-cleanly":          func(x *upstream.Exchange) { x.End() },
		"half-an-event":         func(x *upstream.Exchange) { x.Chunk(`data: {"choi`); x.Die() },
		"half-an-event-cleanly": func(x *upstream.Exchange) { x.Chunk(`data: {"choi`); x.End() },
		"half-a-chunk":          func(x *upstream.Exchange) { x.Write("ff\r\ndata: {"); x.Die() },
		"not-json":              func(x *upstream.Exchange) { x.Chunk("data: internal failure\n\n"); x.Hold(nil) },
		"ollama-killed": func(x *upstream.Exchange) {
			x.Chunk(`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"model":""}` + "\n\n")
			x.End()
		},
		"llama-error":      func(x *upstream.Exchange) { x.Chunk(upstream.LlamaInStream); x.End() },
		"llama-error-held": func(x *upstream.Exchange) { x.Chunk(upstream.LlamaInStream); x.Hold(nil) },
		"vllm-error": func(x *upstream.Exchange) {
			x.Chunk(`data: {"error":{"object":"error","message":"the model gave up","type":"InternalServerError","code":500}}` + "\n\n" + upstream.Done)
			x.End()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r.serve(t, name, func(x *upstream.Exchange) {
				x.Stream()
				x.Chunk(upstream.Role(up(name)))
				x.Chunk(upstream.Delta(up(name), "so far"))
				x.Sleep(20 * time.Millisecond)
				end(x)
			})
			s := r.Stream(t, harness.Chat(name, `,"stream":true`))
			s.Expect(t, upstream.Role(name))
			s.Expect(t, upstream.Delta(name, "so far"))
			rest, err := s.Rest()
			events := strings.SplitAfter(rest, "\n\n")
			last := events[max(0, len(events)-2)] // an empty string follows the last separator
			if name == "ollama-killed" && len(events) == 3 {
				events = events[1:] // the empty event may pass, with a name
			}
			if len(events) != 2 || err != nil || strings.Contains(rest, "[DONE]") {
				t.Errorf("after the death: %q, %v", rest, err)
			}
			expectStreamError(t, last)
			if strings.HasSuffix(name, "-error") && !strings.Contains(last, "the model gave up") {
				t.Errorf("the upstream's message is lost: %s", last)
			}
			r.up.WaitRunning(t, 0) // the gateway has closed what the upstream held open
		})
	}
}

// Error answers of real servers, and what the client gets for them.
func TestUpstreamErrors(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	for _, c := range []struct {
		name   string
		answer upstream.Handler
		status int
		kind   string
		code   string
		param  string
		text   string // must be in the message
		header string // must be in the answer
	}{
		{"loading", upstream.Answer(503, "application/json", upstream.LlamaLoading), 503, "server_error", "overloaded", "", "Loading model", "Retry-After"},
		{"server-error", upstream.Answer(500, "application/json", upstream.LlamaServerError), 502, "server_error", "upstream_error", "", "slot state", ""},
		{"unauthorized", upstream.Answer(401, "application/json", upstream.LlamaUnauthorized), 502, "server_error", "upstream_auth", "", "", "X-Should-Retry"},
		{"forbidden", upstream.Answer(403, "text/plain", ""), 502, "server_error", "upstream_auth", "", "", "X-Should-Retry"},
		{"context", upstream.Answer(400, "application/json", upstream.LlamaContext), 400, "invalid_request_error", "context_length_exceeded", "messages", "", ""},
		{"unknown-model", upstream.Answer(404, "application/json", upstream.OllamaUnknownModel), 404, "invalid_request_error", "model_not_found", "", "", ""},
		{"unknown-path", upstream.Answer(404, "text/plain", upstream.OllamaUnknownPath), 404, "invalid_request_error", "model_not_found", "", "", ""},
		{"old-vllm", upstream.Answer(400, "application/json", upstream.VLLMOld), 400, "invalid_request_error", "", "", "max_tokens must be at least 1", ""},
		{"fastapi", upstream.Answer(422, "application/json", `{"detail":[{"loc":["body"],"msg":"field required"}]}`), 400, "invalid_request_error", "", "", "field required", ""},
		{"rate-limit", upstream.Answer(429, "application/json", `{"error":"slow down"}`), 429, "rate_limit_error", "rate_limit_exceeded", "", "slow down", "Retry-After"},
		{"image", upstream.Answer(500, "application/json", `{"error":{"code":500,"message":"image input is not supported","type":"server_error"}}`), 400, "invalid_request_error", "", "", "image input", ""},
		{"html", upstream.Answer(502, "text/html", "<html><body><h1>Bad Gateway</h1></body></html>"), 502, "server_error", "upstream_error", "", "Bad Gateway", ""},
		{"timeout", upstream.Answer(504, "text/plain", ""), 504, "server_error", "upstream_timeout", "", "", ""},
		{"empty", upstream.Answer(500, "text/plain", ""), 502, "server_error", "upstream_error", "", "500", ""},
		{"redirect", func(x *upstream.Exchange) { x.Head(307, "Location: http://127.0.0.1:1/v1/", "Content-Length: 0") }, 502, "server_error", "upstream_error", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.serve(t, c.name, c.answer)
			for _, more := range []string{"", `,"stream":true`} {
				a := r.Post(t, harness.Chat(c.name, more))
				e := a.ExpectError(t, c.status, c.kind, c.code)
				if !strings.Contains(e.Message, c.text) || strings.ContainsAny(e.Message, "<>") {
					t.Errorf("message %q, want %q in it", e.Message, c.text)
				}
				if c.param != "" && (e.Param == nil || *e.Param != c.param) {
					t.Errorf("param of %s, want %q", a.Body, c.param)
				}
				if c.header != "" && a.Header.Get(c.header) == "" {
					t.Errorf("there is no %s header: %v", c.header, a.Header)
				}
			}
			if n := len(r.up.Requests()); n == 0 {
				t.Error("the upstream was not asked")
			}
		})
	}
}

// A stream whose status is out already reports errors within the stream.
func TestErrorAfterPings(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{Translator: serve.Translator{KeepAlive: 100 * time.Millisecond}})
	for name, end := range map[string]func(x *upstream.Exchange){
		"status-500": func(x *upstream.Exchange) {
			upstream.Answer(500, "application/json", upstream.LlamaServerError)(x)
		},
		"dies": func(x *upstream.Exchange) { x.Die() },
	} {
		t.Run(name, func(t *testing.T) {
			r.serve(t, name, func(x *upstream.Exchange) {
				x.Sleep(500 * time.Millisecond)
				end(x)
			})
			s := r.Stream(t, harness.Chat(name, `,"stream":true`))
			pings := 0
			event, err := s.Next()
			for ; err == nil && strings.HasPrefix(event, ":"); event, err = s.Next() {
				pings++
			}
			// A connector tries again when an upstream closes a connection that had
			// been idle, within a second: hence up to twice the pings.
			if s.Status != 200 || pings < 2 || pings > 11 || err != nil {
				t.Errorf("status %d, %d pings, error %v", s.Status, pings, err)
			}
			if !strings.HasPrefix(event, `data: {"error":{"message":"`) || !strings.Contains(event, `"type":"server_error","param":null,"code":"upstream_`) {
				t.Errorf("after the pings: %q", event)
			}
			if rest, err := s.Next(); rest != "" || err != io.EOF {
				t.Errorf("after the error: %q, %v", rest, err)
			}
		})
	}
}
