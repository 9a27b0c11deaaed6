package tests

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
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
			m.Calls = append(m.Calls, toolCall{text(item, "call_id"), text(item, "name"), toJSON(t, fromJSON(t, text(item, "arguments")))})
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
	if n := names(list); len(n) < 4 || n[0] != "response.created" || n[1] != "response.in_progress" || n[len(n)-1] != "[DONE]" {
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

// A request goes up as chat and comes back as a response, whole and streamed.
func TestResponses(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "org/m:1", upstream.Echo)
	got, response := askResponses(t, r.Client, responsesRequest("org/m:1", `,"instructions":"be brief","max_output_tokens":50,"metadata":{"a":"b"}`))
	if !strings.HasSuffix(got.Text, " bytes") || got.Stop != "completed" || text(response, "model") != "org/m:1" || text(response, "metadata", "a") != "b" {
		t.Errorf("got %+v, %v", got, response)
	}
	sent := r.up.Last(t)
	body := fromJSON(t, string(sent.Body))
	if sent.Target != "/v1/chat/completions" || text(body, "model") != up("org/m:1") || number(body, "max_tokens") != 50 ||
		text(body, "messages", 0, "content") != "be brief" || text(body, "messages", 1, "content") != harness.Prompt {
		t.Errorf("the upstream received %s", sent.Bytes())
	}
	r.serve(t, "streamed", upstream.Events(storyOf(up("streamed"))...))
	if m, _ := askResponses(t, r.Client, responsesRequest("streamed", `,"stream":true`)); m.Text == "" || m.Stop != "completed" {
		t.Errorf("got %+v", m)
	}
	s := r.Client.Open(t, responsesPath, responsesRequest("streamed", `,"stream":true`))
	if s.Header.Get("Content-Type") != "text/event-stream" || s.Header.Get("x-request-id") == "" {
		t.Errorf("headers %v", s.Header)
	}
}

func TestResponsesErrors(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	_, narrow := r.Gateway.Key(t, "narrow", "other*")
	r.serve(t, "m", upstream.Echo)
	r.serve(t, "full", upstream.Answer(400, "application/json", upstream.LlamaContext))
	r.serve(t, "loading", upstream.Answer(503, "application/json", upstream.LlamaLoading))
	for _, tc := range []struct {
		name, body string
		client     *harness.Client
		status     int
		kind, code string
	}{
		{"no key", responsesRequest("m", ""), r.Gateway.Client(t, ""), 401, "invalid_request_error", "invalid_api_key"},
		{"scope", responsesRequest("m", ""), r.Gateway.Client(t, narrow), 404, "invalid_request_error", "model_not_found"},
		{"model", responsesRequest("nosuch", ""), nil, 404, "invalid_request_error", "model_not_found"},
		{"no input", `{"model":"m"}`, nil, 400, "invalid_request_error", "missing_required_parameter"},
		{"background", responsesRequest("m", `,"background":true`), nil, 400, "invalid_request_error", "unsupported_parameter"},
		{"previous", responsesRequest("m", `,"previous_response_id":"resp_x"`), nil, 400, "invalid_request_error", "previous_response_not_found"},
		{"context", responsesRequest("full", ""), nil, 400, "invalid_request_error", "context_length_exceeded"},
		{"loading", responsesRequest("loading", ""), nil, 503, "server_error", "overloaded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := tc.client
			if client == nil {
				client = r.Client
			}
			for _, body := range []string{tc.body, strings.Replace(tc.body, `"model"`, `"stream":true,"model"`, 1)} {
				e := client.Do(t, http.MethodPost, responsesPath, body).ExpectError(t, tc.status, tc.kind, tc.code)
				if tc.name == "context" && (e.Param == nil || *e.Param != "input") {
					t.Errorf("param %v", e.Param)
				}
			}
		})
	}
	r.Do(t, http.MethodGet, responsesPath, "", "Connection: Upgrade", "Upgrade: websocket").ExpectError(t, 426, "invalid_request_error", "upgrade_not_supported")
	r.Do(t, http.MethodPost, responsesPath+"/resp_x/cancel", "").ExpectError(t, 404, "invalid_request_error", "")
	r.Do(t, http.MethodPost, responsesPath+"/compact", "{}").ExpectError(t, 404, "invalid_request_error", "unknown_url")
}

// A stream that breaks off tells so in all the forms that clients know, and
// never as a response that is completed.
func TestResponsesStreamBreaksOff(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "dies", func(x *upstream.Exchange) {
		x.Stream()
		x.Chunk(upstream.Role(up("dies")) + upstream.Delta(up("dies"), "half an answer"))
		x.Sleep(50 * time.Millisecond)
		x.Reset()
	})
	a := r.Do(t, http.MethodPost, responsesPath, responsesRequest("dies", `,"stream":true`))
	list := readEvents(t, a.Body)
	n := len(list)
	if got := names(list); a.Err != nil || !slices.Equal(got[n-3:], []string{"error", "response.failed", "[DONE]"}) || slices.Contains(got, "response.completed") {
		t.Fatalf("%v, events %v", a.Err, got)
	}
	if text(list[n-3].Data, "error", "code") == "" || text(list[n-3].Data, "code") == "" || text(list[n-2].Data, "response", "error", "code") == "" {
		t.Errorf("the error is %v, the response %v", list[n-3].Data, list[n-2].Data)
	}
}

// While the upstream is silent the stream is opened, and shows that it lives.
func TestResponsesPings(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{Translator: serve.Translator{KeepAlive: 100 * time.Millisecond}})
	r.serve(t, "slow", func(x *upstream.Exchange) {
		x.Sleep(350 * time.Millisecond)
		upstream.Events(storyOf(up("slow"))...)(x)
	})
	start := time.Now()
	s := r.Client.Open(t, responsesPath, responsesRequest("slow", `,"stream":true`))
	if d := time.Since(start); d > 300*time.Millisecond {
		t.Errorf("opened after %v", d)
	}
	rest, err := s.Rest()
	list := readEvents(t, rest)
	streamedResponse(t, list)
	progress := 0
	for _, name := range names(list) {
		if name == "response.in_progress" {
			progress++
		}
	}
	if err != nil || progress < 3 || progress > 5 {
		t.Errorf("%v, %d of response.in_progress", err, progress)
	}
}

// A response that is kept can be gone on from, read, listed and deleted, by its
// key, and by nobody after that.
func TestKeptResponses(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "m", upstream.Echo)
	r.serve(t, "streamed", upstream.Events(storyOf(up("streamed"))...))
	first, response := askResponses(t, r.Client, responsesRequest("m", `,"instructions":"be brief"`))
	id := text(response, "id")
	_, second := askResponses(t, r.Client, `{"model":"streamed","stream":true,"input":"go on","previous_response_id":`+harness.Quote(id)+`}`)
	if text(second, "previous_response_id") != id {
		t.Errorf("the second response names %v", at(second, "previous_response_id"))
	}
	sent := fromJSON(t, string(r.up.Last(t).Body))
	want := []any{
		map[string]any{"role": "user", "content": harness.Prompt},
		map[string]any{"role": "assistant", "content": first.Text},
		map[string]any{"role": "user", "content": "go on"},
	}
	if toJSON(t, at(sent, "messages")) != toJSON(t, want) {
		t.Errorf("the upstream received %s", toJSON(t, at(sent, "messages")))
	}
	// What was streamed is kept too.
	third, _ := askResponses(t, r.Client, `{"model":"m","input":"and on","previous_response_id":`+harness.Quote(text(second, "id"))+`}`)
	if messages, _ := at(fromJSON(t, string(r.up.Last(t).Body)), "messages").([]any); len(messages) != 5 || third.Text == "" {
		t.Errorf("the upstream received %v", messages)
	}

	path := responsesPath + "/" + id
	kept := r.Do(t, http.MethodGet, path, "")
	if kept.Status != 200 || toJSON(t, fromJSON(t, kept.Body)) != toJSON(t, response) {
		t.Errorf("status %d, %s; want %s", kept.Status, kept.Body, toJSON(t, response))
	}
	items := fromJSON(t, r.Do(t, http.MethodGet, path+"/input_items", "").Body)
	if text(items, "object") != "list" || text(items, "data", 0, "type") != "message" || text(items, "data", 0, "id") == "" ||
		text(items, "first_id") != text(items, "data", 0, "id") || at(items, "has_more") != false {
		t.Errorf("input items %v", items)
	}
	// An item of it can be named alone.
	reference := fmt.Sprintf(`{"model":"m","input":[{"type":"item_reference","id":%s},{"role":"user","content":"x"}]}`, harness.Quote(text(response, "output", 0, "id")))
	askResponses(t, r.Client, reference)
	if got := text(fromJSON(t, string(r.up.Last(t).Body)), "messages", 0, "content"); got != first.Text {
		t.Errorf("the item that was referred to is %q", got)
	}

	// Another key of the account sees nothing of it, with whatever scope.
	_, otherKey := r.Gateway.Key(t, "other", "*")
	expectNotKept(t, r.Gateway.Client(t, otherKey), id)

	if a := r.Do(t, http.MethodDelete, path, ""); a.Status != 200 || at(fromJSON(t, a.Body), "deleted") != true {
		t.Errorf("deleting: status %d, %s", a.Status, a.Body)
	}
	expectNotKept(t, r.Client, id)
}

// expectNotKept checks that a client finds no response with an id.
func expectNotKept(t *testing.T, c *harness.Client, id string) {
	t.Helper()
	path := responsesPath + "/" + id
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		c.Do(t, method, path, "").ExpectError(t, 404, "invalid_request_error", "")
	}
	c.Do(t, http.MethodGet, path+"/input_items", "").ExpectError(t, 404, "invalid_request_error", "")
	c.Do(t, http.MethodPost, responsesPath, `{"model":"m","input":"x","previous_response_id":`+harness.Quote(id)+`}`).
		ExpectError(t, 400, "invalid_request_error", "previous_response_not_found")
}

// With response_store account, the keys of an account share what models within
// their scopes have made.
func TestResponsesOfAnAccount(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{Translator: serve.Translator{ResponseStore: serve.StoreAccount}})
	r.serve(t, "m", upstream.Echo)
	r.serve(t, "secret", upstream.Echo)
	_, key := r.Gateway.Key(t, "scoped", "m")
	scoped := r.Gateway.Client(t, key)
	_, shared := askResponses(t, r.Client, responsesRequest("m", ""))
	askResponses(t, scoped, `{"model":"m","input":"x","previous_response_id":`+harness.Quote(text(shared, "id"))+`}`)
	_, secret := askResponses(t, r.Client, responsesRequest("secret", ""))
	expectNotKept(t, scoped, text(secret, "id"))
	if a := r.Do(t, http.MethodGet, responsesPath+"/"+text(secret, "id"), ""); a.Status != 200 {
		t.Errorf("status %d, %s", a.Status, a.Body)
	}
}

// store:false, and response_store off, keep nothing.
func TestResponsesThatAreNotKept(t *testing.T) {
	t.Parallel()
	off := newInProcess(t, inprocess.Options{Translator: serve.Translator{ResponseStore: serve.StoreOff}})
	on := newInProcess(t, inprocess.Options{})
	for _, tc := range []struct {
		r    *rig
		more string
	}{{off, ""}, {on, `,"store":false`}} {
		tc.r.serve(t, "m", upstream.Echo)
		_, response := askResponses(t, tc.r.Client, responsesRequest("m", tc.more))
		if at(response, "store") != (tc.more == "") {
			t.Errorf("store is %v", at(response, "store"))
		}
		expectNotKept(t, tc.r.Client, text(response, "id"))
	}
}

// Kept responses and what was learned outlast a reload of the configuration.
func TestKeptResponsesOutlastAReload(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	_, response := askResponses(t, r.Client, responsesRequest("m", ""))
	r.Configure(t, harness.Options{Site: "max_body 1MiB"})
	r.Reload(t)
	if a := r.Do(t, http.MethodGet, responsesPath+"/"+text(response, "id"), ""); a.Status != 200 {
		t.Errorf("after a reload: status %d, %s", a.Status, a.Body)
	}
}
