package serve

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/queue"
)

// Large prompts are counted by turns over the keys, so that one key cannot have
// all processors; small ones do not wait, and a stream for a second at most.
func TestCountingTakesTurns(t *testing.T) {
	g := newGateway(t, 1<<30)
	const path = "/v1/messages/count_tokens"
	small := strings.Replace(requests["/v1/messages"], "TEXT", "hello", 1)
	large := strings.Replace(requests["/v1/messages"], "TEXT", strings.Repeat("some words ", 4000), 1)
	counting := g.backend.learner.counting
	var places []queue.Place
	for range max(runtime.GOMAXPROCS(0)/2, 1) {
		place, err := counting.Enter(t.Context(), queue.Name{}, "other", queue.Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, place)
	}
	if w := g.post(path, small); w.Code != http.StatusOK {
		t.Errorf("a small prompt: status %d, %s", w.Code, w.Body)
	}
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("text/event-stream", io.MultiReader(strings.NewReader("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")), -1)
	}
	if w := g.post("/v1/messages", strings.Replace(large, "false", "true", 1)); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"input_tokens":11`) {
		t.Errorf("a stream: status %d, %s", w.Code, w.Body)
	}
	answered := make(chan int)
	go func() { answered <- g.post(path, large).Code }()
	for waits := 0; waits == 0; time.Sleep(time.Millisecond) {
		counting.Lengths(func(_ queue.Name, n int) { waits = n })
	}
	select {
	case status := <-answered:
		t.Fatalf("a large prompt is counted before its turn: status %d", status)
	default:
	}
	for _, place := range places {
		place.Leave()
	}
	if status := <-answered; status != http.StatusOK {
		t.Errorf("a large prompt: status %d", status)
	}
	g.returned(t)
}
