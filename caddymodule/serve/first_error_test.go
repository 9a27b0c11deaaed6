package serve

import (
	"net/http"
	"strings"
	"testing"
)

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
