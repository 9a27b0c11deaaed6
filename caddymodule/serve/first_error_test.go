package serve

import (
	"net/http"
	"strings"
	"testing"
)

// An error in place of the first event of a stream reaches the client, in each dialect.
func TestErrorIsFirstEvent(t *testing.T) {
	for _, upstream := range []string{
		`{"error":{"message":"This model's maximum context length is 100 tokens.","code":400}}`,
		`{"error":{"message":"overloaded","code":503}}`,
		`{"error":{"message":"slow down","code":429}}`,
		`{"error":{"message":"broken","code":500}}`,
	} {
		for path, body := range requests {
			g := newGateway(t, 64<<20)
			g.answer = func(*http.Request) *http.Response {
				return upstreamAnswer("text/event-stream", strings.NewReader("data: "+upstream+"\n\n"), -1)
			}
			w := g.post(path, strings.Replace(body, `"stream":false`, `"stream":true`, 1))
			if !strings.Contains(w.Body.String(), "error") {
				t.Errorf("%s, %.60s: %d %v %q", path, upstream, w.Code, w.Header(), w.Body)
			}
		}
	}
}

// A stream whose first event rejects the effort is sent again, and the client gets the second answer.
func TestEffortIsRejectedInStream(t *testing.T) {
	g, sent := newGateway(t, 64<<20), 0
	g.answer = func(*http.Request) *http.Response {
		if sent++; sent == 1 {
			return upstreamAnswer("text/event-stream",
				strings.NewReader(`data: {"error":{"message":"reasoning_effort is not supported","code":400}}`+"\n\n"), -1)
		}
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hello there")), -1)
	}
	w := g.post("/v1/responses", `{"model":"m","stream":true,"store":false,"reasoning":{"effort":"high"},"input":"hi"}`)
	if sent != 2 || !strings.Contains(w.Body.String(), "hello there") {
		t.Errorf("sent %d times, %d %.300q", sent, w.Code, w.Body)
	}
}
