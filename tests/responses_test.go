package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

const responsesPath = "/v1/responses"

// responsesRequest is a request of the responses dialect with the Prompt; more
// is spliced in.
func responsesRequest(model, more string) string {
	return fmt.Sprintf(`{"model":%s,"input":%s%s}`, harness.Quote(model), harness.Quote(harness.Prompt), more)
}

// askResponses asks in the responses dialect, whole or streamed, and returns
// the response object too.
func askResponses(t *testing.T, c *harness.Client, request string) (turn, any) {
	t.Helper()
	if !strings.Contains(request, `"stream":true`) {
		response := post(t, c, responsesPath, request)
		return responseTurn(t, response), response
	}
	a := c.Do(t, http.MethodPost, responsesPath, request)
	if a.Status != 200 || a.Err != nil {
		t.Fatalf("status %d, %v, %s", a.Status, a.Err, a.Body)
	}
	return streamedResponse(t, readEvents(t, a.Body))
}

// responseTurn reads a response object.
func responseTurn(t *testing.T, response any) (m turn) {
	t.Helper()
	items, _ := at(response, "output").([]any)
	for _, item := range items {
		switch kind := text(item, "type"); kind {
		case "message":
			m.Text += text(item, "content", 0, "text")
		case "reasoning":
			m.Thinking += text(item, "summary", 0, "text")
		case "function_call":
			m.Calls = append(m.Calls, toolCall{
				text(item, "call_id"), text(item, "name"),
				toJSON(t, fromJSON(t, text(item, "arguments"))),
			})
		default:
			t.Errorf("unexpected item %v", item)
		}
	}
	m.Stop, m.Input, m.Raw = text(response, "status"), number(response, "usage", "input_tokens"), items
	return m
}

// streamedResponse reads the events of a response, checks that they agree with
// the response object at their end, and returns that.
func streamedResponse(t *testing.T, list []event) (turn, any) {
	t.Helper()
	if n := names(list); len(n) < 4 || n[0] != "response.created" || n[1] != "response.in_progress" ||
		n[len(n)-1] != "[DONE]" {
		t.Fatalf("events %v", n)
	}
	said := ""
	var items []any
	for i, e := range list[:len(list)-1] {
		if number(e.Data, "sequence_number") != i {
			t.Errorf("event %d has the number %v", i, e.Data["sequence_number"])
		}
		switch e.Name {
		case "response.output_text.delta":
			said += text(e.Data, "delta")
		case "response.output_item.done":
			items = append(items, e.Data["item"])
		}
	}
	response := list[len(list)-2].Data["response"]
	if toJSON(t, at(response, "output")) != toJSON(t, items) {
		t.Errorf("the response's output is %v, its events gave %v", at(response, "output"), items)
	}
	m := responseTurn(t, response)
	if m.Text != said {
		t.Errorf("the response says %q, its events %q", m.Text, said)
	}
	return m, response
}

// Kept responses and learned counts survive a reload of the configuration.
func TestKeptResponsesOutlastAReload(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	_, response := askResponses(t, r.Client, responsesRequest("m", ""))
	r.Configure(t, harness.Options{Site: "max_body 1MiB"})
	r.Reload(t)
	served(t, r.Do(t, http.MethodGet, responsesPath+"/"+text(response, "id"), ""), "after a reload")
}
