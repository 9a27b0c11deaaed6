package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// thoughtless is a model server as Ollama is with a model that does not think: it
// refuses requests that name a degree of thinking.
func thoughtless(model string) upstream.Handler {
	whole := upstream.JSON(upstream.Completion(up(model), "Hi"))
	stream := upstream.Events(upstream.Role(up(model)), upstream.Delta(up(model), "Hi"), upstream.Finish(up(model), "stop"), upstream.Done)
	refuse := upstream.Answer(http.StatusBadRequest, "application/json", `{"error":{"message":"\"m\" does not support thinking","type":"invalid_request_error"}}`)
	return func(x *upstream.Exchange) {
		switch body := string(x.Request.Body); {
		case strings.Contains(body, `"reasoning_effort"`):
			refuse(x)
		case strings.Contains(body, `"stream":true`):
			stream(x)
		default:
			whole(x)
		}
	}
}

// A degree of thinking that the model does not know costs one request the time
// of a refusal, and nobody the answer.
func TestEffortThatTheModelDoesNotKnow(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	tries := func(f func()) int {
		before := len(r.up.Requests())
		f()
		return len(r.up.Requests()) - before
	}
	messages := func(model, more string) func() {
		return func() {
			if got := askMessages(t, r.Client, messagesRequest(model, `,"output_config":{"effort":"high"}`+more)); got.Text != "Hi" {
				t.Errorf("%s, messages: %+v", model, got)
			}
		}
	}
	responses := func(model, more string) func() {
		return func() {
			if got, _ := askResponses(t, r.Client, responsesRequest(model, `,"reasoning":{"effort":"high"}`+more)); got.Text != "Hi" {
				t.Errorf("%s, responses: %+v", model, got)
			}
		}
	}

	r.serveAs(t, "m", thoughtless("m"), map[string]any{"reasoning": true})
	for i, ask := range []func(){messages("m", `,"stream":true`), messages("m", ""), responses("m", `,"stream":true`)} {
		if got, want := tries(ask), max(1, 2-i); got != want {
			t.Errorf("request %d to m went up %d times, want %d", i, got, want)
		}
	}
	r.serveAs(t, "m", thoughtless("m"), map[string]any{"reasoning": true}) // it may be another model now
	if got := tries(messages("m", "")); got != 2 {
		t.Errorf("a deployment that was set again: %d tries", got)
	}

	// Agents of the responses dialect send their effort to every model.
	r.serve(t, "r", thoughtless("r"))
	for i, ask := range []func(){responses("r", ""), responses("r", "")} {
		if got, want := tries(ask), 2-i; got != want {
			t.Errorf("request %d to r went up %d times, want %d", i, got, want)
		}
	}

	// What the client of the upstream's own dialect asks for is its own affair.
	got := tries(func() {
		if a := r.Post(t, harness.Chat("r", `,"reasoning_effort":"high"`)); a.Status != http.StatusBadRequest || !strings.Contains(a.Body, "does not support thinking") {
			t.Errorf("chat: %d, %s", a.Status, a.Body)
		}
	})
	if got != 1 {
		t.Errorf("a chat request went up %d times", got)
	}
}

// A refusal that comes again without the effort has another cause: nothing is
// learned from it, as its text may be the client's.
func TestEffortIsNotToBlame(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "m", upstream.Answer(http.StatusBadRequest, "application/json", `{"error":{"message":"cannot read: x does not support thinking"}}`))
	request := responsesRequest("m", `,"reasoning":{"effort":"high"}`)
	for range 2 {
		before := len(r.up.Requests())
		if a := r.Do(t, http.MethodPost, responsesPath, request); a.Status != http.StatusBadRequest {
			t.Errorf("%d, %s", a.Status, a.Body)
		}
		sent := r.up.Requests()[before:]
		if len(sent) != 2 || !strings.Contains(string(sent[0].Body), "reasoning_effort") || strings.Contains(string(sent[1].Body), "reasoning_effort") {
			t.Errorf("%d requests went up", len(sent))
		}
	}
}
