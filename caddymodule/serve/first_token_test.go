package serve

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// slowReader reads after a pause.
type slowReader struct {
	io.Reader
	pause time.Duration
}

func (s *slowReader) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	s.pause = 0
	return s.Reader.Read(p)
}

// slowClient reads each piece of an answer after a pause.
type slowClient struct {
	*httptest.ResponseRecorder
	pause time.Duration
}

func (s slowClient) Write(p []byte) (int, error) {
	time.Sleep(s.pause)
	return s.ResponseRecorder.Write(p)
}

// A model server hangs while a stream waits for its first token, after another one got its. A request that failed does
// not count, and neither does one whose answer is no stream: its first token is not known.
func TestRequestsAreObserved(t *testing.T) {
	role := chunkOf(`{"role":"assistant","content":""}`)
	hello := chunkOf(`{"content":"hello"}`) + "data: [DONE]\n\n"
	for _, streamed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(t, 64<<20)
			start, changes := time.Now().Add(-time.Second), make(chan string, 10)
			g.route = tunnel.DeploymentRoute{State: health.Available, Since: start}
			d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
			g.backend.Observed.Deployment = func(_, _ string) (store.Deployment, bool) { return d, true }
			g.backend.Observed.Changed = func(_, _, _ string, found health.Finding) {
				changes <- fmt.Sprintf("%s after %v", found.State, time.Since(start))
			}
			post := func(status int, pause time.Duration) {
				g.answer = func(*http.Request) *http.Response {
					body, kind := io.Reader(strings.NewReader(completionOf("hello"))), "application/json"
					if !streamed {
						time.Sleep(pause)
					} else {
						kind = "text/event-stream"
						body = io.MultiReader(strings.NewReader(role), &slowReader{strings.NewReader(hello), pause})
					}
					answer := upstreamAnswer(kind, body, -1)
					answer.StatusCode = status
					return answer
				}
				g.post("/v1/chat/completions", fmt.Sprintf(`{"model":"m","stream":%t,"messages":[]}`, streamed))
				synctest.Wait()
			}
			post(500, time.Hour)
			post(200, time.Second)
			post(200, 6*time.Minute)
			close(changes)
			var got, want []string
			if streamed {
				want = []string{"hanging after 1h5m31s", "available after 1h6m2s"}
			}
			for change := range changes {
				got = append(got, change)
			}
			if !slices.Equal(got, want) {
				t.Errorf("streamed %t: %q, want %q", streamed, got, want)
			}
		})
	}
}

// A model is slow if its streams come much slower after their first token than before. A long wait for that does not
// count, nor do answers that fail, or that are no streams, or that the client reads slowly.
func TestSlowStreamsAreObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 64<<20)
		g.route = tunnel.DeploymentRoute{State: health.Available, Since: time.Now()}
		d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
		g.backend.Observed.Deployment = func(_, _ string) (store.Deployment, bool) { return d, true }
		var changes []string
		reading := time.Duration(0)
		g.backend.Observed.Changed = func(_, _, _ string, found health.Finding) {
			changes = append(changes, fmt.Sprintf("%s: %.1f, not %.1f", found.State, found.Speed, found.Usual))
		}
		post := func(n int, streamed bool, before, after time.Duration, end string) {
			for range n {
				g.answer = func(*http.Request) *http.Response {
					time.Sleep(before)
					if !streamed {
						time.Sleep(after)
						whole := strings.Replace(completionOf("hello"), `"completion_tokens":1`, `"completion_tokens":41`, 1)
						return upstreamAnswer("application/json", strings.NewReader(whole), -1)
					}
					first := strings.NewReader(chunkOf(`{"content":"hello"}`))
					return upstreamAnswer("text/event-stream", io.MultiReader(first, &slowReader{strings.NewReader(end), after}), -1)
				}
				body := strings.NewReader(fmt.Sprintf(`{"model":"m","stream":%t,"messages":[]}`, streamed))
				g.send(slowClient{httptest.NewRecorder(), reading}, httptest.NewRequest("POST", "/v1/chat/completions", body))
				synctest.Wait()
			}
		}
		const end = `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"up","choices":[{"index":0,` +
			`"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":41,"total_tokens":46}}` +
			"\n\ndata: [DONE]\n\n"
		post(20, true, time.Second, time.Second, end)
		post(20, true, time.Minute, time.Second, end)
		post(20, false, time.Second, 10*time.Second, end)
		post(20, true, time.Second, 10*time.Second, "data: {\"error\":{\"message\":\"out of memory\"}}\n\n")
		reading = 9 * time.Second
		post(20, true, time.Second, time.Second, end)
		reading = 0
		if post(5, true, time.Second, 10*time.Second, end); len(changes) != 0 {
			t.Errorf("before: %q", changes)
		}
		post(10, true, time.Second, 10*time.Second, end)
		post(10, true, time.Second, time.Second, end)
		if want := []string{"slow: 4.0, not 40.0", "available: 0.0, not 0.0"}; !slices.Equal(changes, want) {
			t.Errorf("changes %q, want %q", changes, want)
		}
	})
}

// chunkOf returns a chunk of a stream.
func chunkOf(delta string) string {
	return `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"up",` +
		`"choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}` + "\n\n"
}

// Requests of two keys that run at once are observed; those of one key are not.
func TestKeysAtOnceAreObserved(t *testing.T) {
	for _, two := range []bool{false, true} {
		g := newGateway(t, 64<<20)
		g.route = tunnel.DeploymentRoute{State: health.Available}
		d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
		g.backend.Observed.Deployment = func(_, _ string) (store.Deployment, bool) { return d, true }
		secret := g.secret
		if two {
			_, secret = g.newKey(t, store.DefaultAccount, "m")
		}
		chat := func() { g.post("/v1/chat/completions", `{"model":"m","messages":[]}`) }
		hello := func(*http.Request) *http.Response {
			return upstreamAnswer("application/json", strings.NewReader(completionOf("hello")), -1)
		}
		g.answer = func(r *http.Request) *http.Response { // while this request runs, another one comes
			g.answer, g.secret = hello, secret
			chat()
			return hello(r)
		}
		chat()
		if g.backend.Observed.Shared(&d) != two {
			t.Errorf("two keys %v: observed %v", two, !two)
		}
	}
}

// The first token is the first of the model's output, not the role before it.
func TestFirstToken(t *testing.T) {
	for event, want := range map[string]bool{
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`:                 false,
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}`:               false,
		`{"choices":[{"index":0,"delta":{"role":"assistant","function_call":null}}]}`:         false,
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[]}}]}`: false,
		`{"choices": [{"index": 0, "delta": {"content": "H"}}]}`:                              true,
		`{"choices":[{"delta":{"content":"","reasoning_content":"Hm"}}]}`:                     true,
		`{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`:                                true,
		`{"choices":[{"index":0,"text":"H"}]}`:                                                true,
	} {
		a := &answer{w: httptest.NewRecorder()}
		a.open(dialect.NewChatStream(dialect.ChatStreamOptions{}), 0)
		if _, derr := a.feed([]byte("data: " + event + "\n\n")); derr != nil {
			t.Fatal(derr)
		}
		if e := a.end(dialect.Chat); e.First.IsZero() == want {
			t.Errorf("%s: first token at %v", event, e.First)
		}
	}
}
