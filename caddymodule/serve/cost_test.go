package serve

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// upstreamAnswer is an answer of the upstream.
func upstreamAnswer(contentType string, body io.Reader, length int64) *http.Response {
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(body), ContentLength: length,
	}
}

// completionOf is a whole answer.
func completionOf(text string) string {
	return `{"id":"x","object":"chat.completion","created":1,"model":"up","choices":[{"index":0,` +
		`"message":{"role":"assistant","content":"` +
		text + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`
}

// requests has a small request of each dialect, by its path.
var requests = map[string]string{
	"/v1/chat/completions": `{"model":"m","stream":false,"messages":[{"role":"user","content":"TEXT"}]}`,
	"/v1/messages":         `{"model":"m","stream":false,"max_tokens":9,"messages":[{"role":"user","content":"TEXT"}]}`,
	"/v1/responses":        `{"model":"m","stream":false,"store":false,"input":"TEXT"}`,
}

// isFull checks that a request was refused for lack of memory.
func isFull(t *testing.T, path string, w *httptest.ResponseRecorder) {
	t.Helper()
	status := 503
	if path == "/v1/messages" {
		status = 529
	}
	if w.Code != status || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "max_memory") {
		t.Errorf("%s: status %d, %q", path, w.Code, clipped(w.Body.String()))
	}
}

func clipped(s string) string { return s[:min(len(s), 500)] }

// counted is a reader that records whether it was read.
type counted struct {
	io.Reader
	read int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += n
	return n, err
}

// A body that exceeds the free memory is refused before it is read. If its size is unknown, it is
// refused while it is read.
func TestBodiesTakeMemory(t *testing.T) {
	g := newGateway(t, 4<<20)
	g.answer = func(*http.Request) *http.Response {
		t.Error("a request was sent on for which there is no memory")
		return upstreamAnswer("application/json", strings.NewReader(completionOf("a")), -1)
	}
	for path, request := range requests {
		body := strings.Replace(request, "TEXT", strings.Repeat("x", 15<<18), 1)
		known := &counted{Reader: strings.NewReader(body)}
		r := httptest.NewRequest(http.MethodPost, path, known)
		r.ContentLength = int64(len(body))
		w := httptest.NewRecorder()
		g.send(w, r)
		isFull(t, path, w)
		if known.read > 0 {
			t.Errorf("%s: %d bytes were read of a body for which there is no memory", path, known.read)
		}
		r = httptest.NewRequest(http.MethodPost, path, bytes.NewReader(gzipped(t, []byte(body))))
		r.Header.Set("Content-Encoding", "gzip")
		w = httptest.NewRecorder()
		g.send(w, r)
		isFull(t, path, w)
	}
	g.returned(t)
}

// The budget counts bodies that wait for a slow model: many at a time are refused, and
// a small request of another key is served meanwhile.
func TestWaitingBodiesTakeMemory(t *testing.T) {
	g := newGateway(t, 16<<20)
	proceed, waiting, refused := make(chan struct{}), make(chan struct{}), make(chan struct{})
	g.answer = func(r *http.Request) *http.Response {
		if r.ContentLength > 1<<19 {
			waiting <- struct{}{}
			<-proceed
		}
		return upstreamAnswer("application/json", strings.NewReader(completionOf("a")), -1)
	}
	body := gzipped(t, []byte(strings.Replace(requests["/v1/chat/completions"], "TEXT", strings.Repeat("x", 3<<19), 1)))
	var all sync.WaitGroup
	const requestsAtOnce = 40
	for range requestsAtOnce {
		all.Go(func() {
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body))
			r.Header.Set("Content-Encoding", "gzip")
			w := httptest.NewRecorder()
			g.send(w, r)
			if w.Code != 200 {
				isFull(t, "/v1/chat/completions", w)
				refused <- struct{}{}
			}
		})
	}
	reserved := 0
	for range requestsAtOnce {
		select {
		case <-waiting:
			reserved++
		case <-refused:
		}
	}
	if reserved == 0 || reserved > 10 {
		t.Errorf("memory is reserved for %d bodies of 1.5 MiB, of a budget of 16 MiB", reserved)
	}
	g.key, g.secret = g.newKey(t, store.DefaultAccount, "*")
	for path, request := range requests {
		if w := g.post(path, request); w.Code != 200 {
			t.Errorf("%s of another key: status %d, %s", path, w.Code, w.Body)
		}
	}
	close(proceed)
	all.Wait()
	g.returned(t)
}

// A whole answer that exceeds the free memory is refused, before it is read if its
// size is known.
func TestAnswersTakeMemory(t *testing.T) {
	g := newGateway(t, 4<<20)
	answer := completionOf(strings.Repeat("x", 15<<18))
	for path, request := range requests {
		for _, size := range []int64{int64(len(answer)), -1} {
			for _, stream := range []string{"false", "true"} { // the answer is whole nevertheless
				body := &counted{Reader: strings.NewReader(answer)}
				g.answer = func(*http.Request) *http.Response { return upstreamAnswer("application/json", body, size) }
				isFull(t, path, g.post(path, strings.Replace(request, `"stream":false`, `"stream":`+stream, 1)))
				if size > 0 && body.read > 0 {
					t.Errorf("%s: %d bytes were read of an answer for which there is no memory", path, body.read)
				}
			}
		}
	}
	g.returned(t)
}

// endless is an event stream without an end.
type endless struct {
	first, event string
	read         int
	rest         []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		e.rest = []byte(e.event)
		if e.read == 0 {
			e.rest = []byte(e.first + e.event)
		}
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	e.read += n
	return n, nil
}

// A stream that buffers too much ends with an error event.
func TestStreamsTakeMemory(t *testing.T) {
	const limit = 128 << 20 // bytes that are read until then
	chunk := func(delta string) string { return `data: {"choices":[{"index":0,"delta":` + delta + "}]}\n\n" }
	text := strings.Repeat("text ", 400)
	call := func(k, rest string) string { return `{"tool_calls":[{"index":` + k + `,` + rest + `}]}` }
	streams := map[string]endless{
		"text":     {event: chunk(`{"content":"` + text + `"}`)},
		"thinking": {event: chunk(`{"reasoning_content":"` + text + `"}`)},
		"arguments": {
			first: chunk(call("0", `"id":"c","function":{"name":"f","arguments":"{\"a\":\""}`)),
			event: chunk(call("0", `"function":{"arguments":"`+text+`"}`)),
		},
		"text behind": {
			first: chunk(call("0", `"id":"c","function":{"name":"f","arguments":"{\"a\":\""}`)),
			event: chunk(`{"content":"` + text + `"}`),
		},
		"calls behind": {
			first: chunk(call("0", `"id":"c","function":{"name":"f","arguments":"{\"a\":\""}`)),
			event: chunk(call("1", `"id":"d","function":{"name":"g","arguments":"`+text+`"}`)),
		},
		"one event": {first: "data: ", event: text},
	}
	for path, names := range map[string][]string{
		"/v1/responses":        {"text", "thinking", "arguments", "text behind", "calls behind", "one event"},
		"/v1/messages":         {"text behind", "calls behind", "one event"},
		"/v1/chat/completions": {"one event"},
	} {
		for _, name := range names {
			t.Run(path+" "+name, func(t *testing.T) {
				g := newGateway(t, 8<<20)
				upstream := streams[name]
				g.answer = func(*http.Request) *http.Response {
					return upstreamAnswer("text/event-stream", io.LimitReader(&upstream, limit), -1)
				}
				w := g.post(path, strings.Replace(requests[path], `"stream":false`, `"stream":true`, 1))
				body := w.Body.String()
				if !strings.Contains(body, "memory limit for requests and answers") {
					t.Errorf("status %d, the stream ended with %s", w.Code, body[max(0, len(body)-1000):])
				}
				if upstream.read > 16<<20 {
					t.Errorf("%d MiB were read of the stream", upstream.read>>20)
				}
				g.returned(t)
			})
		}
	}
}

// A request for a model that does not exist, or that the key cannot use, is refused before it is
// translated.
func TestModelComesFirst(t *testing.T) {
	g := newGateway(t, 32<<20)
	g.answer = func(*http.Request) *http.Response {
		t.Error("a request was sent on whose model may not be used")
		return nil
	}
	c, _, err := g.backend.Store.CreateConnector(t.Context(), store.DefaultAccount, "second")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.backend.Store.SetDeployment(t.Context(),
		store.Deployment{Account: store.DefaultAccount, Name: "other", Connectors: []string{c.ID}}); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{
		"/v1/chat/completions":       `{"model":"MODEL","messages":[]}`,
		"/v1/messages":               `{"model":"MODEL","messages":[0]}`,
		"/v1/messages/count_tokens":  `{"model":"MODEL","messages":[0]}`,
		"/v1/responses":              `{"model":"MODEL","input":[0]}`,
		"/v1/responses/input_tokens": `{"model":"MODEL","input":[0]}`,
	} {
		for _, model := range []string{"other", "not-there"} {
			w := g.post(path, strings.Replace(body, "MODEL", model, 1))
			if w.Code != 403 && w.Code != 404 || !strings.Contains(w.Body.String(), model) {
				t.Errorf("%s, %s: status %d, %s", path, model, w.Code, w.Body)
			}
		}
	}
	g.returned(t)
}

// A connector without memory has not read the request. Another connector may serve it. Without one,
// the client may try again.
func TestBusyConnector(t *testing.T) {
	ex := &Exchange{translated: translated{Deployment: "m"}}
	var derr *dialect.Error
	if err := new(Router).clientError(t.Context(), ex, link.ErrBusy); !errors.As(err, &derr) ||
		derr.HTTPStatus(dialect.Chat) != 503 || derr.RetryAfter == 0 {
		t.Errorf("the client gets %v", err)
	}
	if r, _ := refusalOf(link.ErrBusy); !r.again {
		t.Error("no other connector is asked")
	}
}
