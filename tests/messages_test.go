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

const messagesPath = "/v1/messages"

// messagesRequest is a request of the messages dialect with the Prompt; more
// is spliced in.
func messagesRequest(model, more string) string {
	return fmt.Sprintf(`{"model":%s,"max_tokens":100,"messages":[{"role":"user","content":%s}]%s}`, harness.Quote(model), harness.Quote(harness.Prompt), more)
}

// A turn is an answer of a model in any dialect, streamed or whole.
type turn struct {
	Text, Thinking string
	Calls          []toolCall
	Stop           string
	Input          int // tokens of the prompt, with those from the server's cache
	Raw            any // what stands for the answer in the next request
}

// A toolCall is a call of a tool with its arguments as compact JSON.
type toolCall struct{ ID, Name, Arguments string }

// add adds a block to a turn of the messages dialect.
func (m *turn) add(t *testing.T, block any) {
	t.Helper()
	switch text(block, "type") {
	case "text":
		m.Text += text(block, "text")
	case "thinking":
		m.Thinking += text(block, "thinking")
		if text(block, "signature") == "" {
			t.Error("a thinking block has no signature")
		}
	case "tool_use":
		m.Calls = append(m.Calls, toolCall{text(block, "id"), text(block, "name"), toJSON(t, at(block, "input"))})
	default:
		t.Errorf("unexpected block %v", block)
	}
}

// askMessages asks in the messages dialect, whole or streamed.
func askMessages(t *testing.T, c *harness.Client, request string) (m turn) {
	t.Helper()
	if !strings.Contains(request, `"stream":true`) {
		answer := post(t, c, messagesPath, request)
		blocks, _ := at(answer, "content").([]any)
		for _, block := range blocks {
			m.add(t, block)
		}
		m.Stop, m.Input, m.Raw = text(answer, "stop_reason"), promptTokens(answer), at(answer, "content")
		return m
	}
	a := c.Do(t, http.MethodPost, messagesPath, request)
	if a.Status != 200 || a.Err != nil {
		t.Fatalf("status %d, %v, %s", a.Status, a.Err, a.Body)
	}
	return messagesTurn(t, readEvents(t, a.Body))
}

// promptTokens is the size of the prompt by the usage of a message: what came
// from the server's cache is not among the input tokens.
func promptTokens(message any) int {
	return number(message, "usage", "input_tokens") + number(message, "usage", "cache_read_input_tokens")
}

// messagesTurn puts a turn together from a stream's events.
func messagesTurn(t *testing.T, list []event) (m turn) {
	t.Helper()
	var blocks []any
	var open map[string]any
	var input strings.Builder
	for _, e := range list {
		switch e.Name {
		case "content_block_start":
			open, _ = e.Data["content_block"].(map[string]any)
			if number(e.Data, "index") != len(blocks) {
				t.Errorf("block %v starts as number %d", e.Data["index"], len(blocks))
			}
			input.Reset()
		case "content_block_delta":
			for _, part := range []string{"text", "thinking", "signature"} {
				if s := text(e.Data, "delta", part); s != "" {
					open[part] = text(open, part) + s
				}
			}
			input.WriteString(text(e.Data, "delta", "partial_json"))
		case "content_block_stop":
			if input.Len() > 0 {
				open["input"] = fromJSON(t, input.String())
			}
			m.add(t, open)
			blocks = append(blocks, open)
		case "message_delta":
			m.Stop, m.Input = text(e.Data, "delta", "stop_reason"), promptTokens(e.Data)
		case "message_start", "message_stop", "ping":
		default:
			t.Errorf("unexpected event %s %v", e.Name, e.Data)
		}
	}
	if last := list[len(list)-1].Name; last != "message_stop" {
		t.Errorf("the stream ends with %s", last)
	}
	m.Raw = blocks
	return m
}

// messagesError checks an error of the messages dialect and returns its
// message.
func messagesError(t *testing.T, a harness.Answer, status int, kind string) string {
	t.Helper()
	e := fromJSON(t, a.Body)
	if a.Status != status || text(e, "type") != "error" || text(e, "error", "type") != kind {
		t.Errorf("status %d, %s; want %d %s", a.Status, a.Body, status, kind)
	}
	id := text(e, "request_id")
	if !strings.HasPrefix(id, "req_") || a.Header.Get("request-id") != id || a.Header.Get("x-request-id") != id {
		t.Errorf("request id %q in the body, %q and %q in headers", id, a.Header.Get("request-id"), a.Header.Get("x-request-id"))
	}
	return text(e, "error", "message")
}

// A request goes up as chat and comes back as a message, whole and streamed.
func TestMessages(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "org/m:1", upstream.Echo)
	got := askMessages(t, r.Client, messagesRequest("org/m:1", `,"system":"be brief","temperature":0.5`))
	if !strings.HasSuffix(got.Text, " bytes") || got.Stop != "end_turn" {
		t.Errorf("got %+v", got)
	}
	sent := r.up.Last(t)
	if sent.Target != "/v1/chat/completions" || sent.Header.Get("X-Api-Key")+sent.Header.Get("Authorization")+sent.Header.Get("Anthropic-Version") != "" {
		t.Errorf("the upstream received %s", sent.Bytes())
	}
	body := fromJSON(t, string(sent.Body))
	if text(body, "model") != up("org/m:1") || number(body, "max_tokens") != 100 || text(body, "messages", 0, "content") != "be brief" ||
		text(body, "messages", 1, "content") != harness.Prompt || at(body, "temperature") != 0.5 {
		t.Errorf("the upstream received %s", sent.Body)
	}

	r.serve(t, "streamed", upstream.Events(storyOf(up("streamed"))...))
	a := r.Do(t, http.MethodPost, messagesPath+"?beta=true", messagesRequest("streamed", `,"stream":true`), "anthropic-version: 2023-06-01")
	list := readEvents(t, a.Body)
	if n := names(list); n[0] != "message_start" || n[1] != "ping" {
		t.Errorf("the stream begins with %v", n)
	}
	if model := text(list[0].Data, "message", "model"); model != "streamed" {
		t.Errorf("the message is of %q", model)
	}
	if m := messagesTurn(t, list); m.Text == "" || m.Stop != "end_turn" {
		t.Errorf("got %+v", m)
	}
	if a.Header.Get("Content-Type") != "text/event-stream" || a.Header.Get("request-id") == "" || a.Header.Get("request-id") != a.Header.Get("x-request-id") {
		t.Errorf("headers %v", a.Header)
	}
}

// Every error comes in the caller's shape, for streams that have not begun too.
func TestMessagesErrors(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{Translator: serve.Translator{MaxBody: 100 << 10}})
	_, narrow := r.Gateway.Key(t, "narrow", "other*")
	r.serve(t, "m", upstream.Echo)
	r.serve(t, "loading", upstream.Answer(503, "application/json", upstream.LlamaLoading))
	r.serve(t, "locked", upstream.Answer(401, "application/json", upstream.LlamaUnauthorized))
	r.serve(t, "full", upstream.Answer(400, "application/json", upstream.LlamaContext))
	r.serve(t, "inband", upstream.Answer(200, "application/json", `{"error":{"message":"the model gave up","code":500}}`))
	idle := r.NewConnector(t, "idle", map[string]any{"upstream": r.up.URL})
	r.Deploy(t, "offline", idle.ID, "", "x")
	for _, tc := range []struct {
		name, body string
		client     *harness.Client
		status     int
		kind, says string
	}{
		{"no key", messagesRequest("m", ""), r.Gateway.Client(t, ""), 401, "authentication_error", "No API key"},
		{"scope", messagesRequest("m", ""), r.Gateway.Client(t, narrow), 404, "not_found_error", "model: m"},
		{"model", messagesRequest("nosuch", ""), nil, 404, "not_found_error", "model: nosuch"},
		{"not JSON", `{"model":`, nil, 400, "invalid_request_error", "JSON"},
		{"no messages", `{"model":"m","max_tokens":5}`, nil, 400, "invalid_request_error", "messages"},
		{"no max_tokens", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, nil, 400, "invalid_request_error", "max_tokens: Field required"},
		{"too large", messagesRequest("m", `,"x":"`+strings.Repeat("x", 200<<10)+`"`), nil, 413, "request_too_large", "100 KiB"},
		{"loading", messagesRequest("loading", ""), nil, 529, "overloaded_error", "Loading model"},
		{"upstream's key", messagesRequest("locked", ""), nil, 502, "api_error", ""},
		{"context", messagesRequest("full", ""), nil, 400, "invalid_request_error", "prompt is too long: 5009 tokens > 4096 maximum"},
		{"offline", messagesRequest("offline", ""), nil, 503, "overloaded_error", "offline"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := tc.client
			if client == nil {
				client = r.Client
			}
			for _, body := range []string{tc.body, strings.Replace(tc.body, `"max_tokens":100`, `"stream":true,"max_tokens":100`, 1)} {
				a := client.Do(t, http.MethodPost, messagesPath, body)
				if says := messagesError(t, a, tc.status, tc.kind); tc.name != "too large" && !strings.Contains(says, tc.says) {
					t.Errorf("the message is %q", says)
				}
			}
		})
	}
	for _, path := range []string{"/v1/messages/nosuch", "/v1/messages/batches"} {
		messagesError(t, r.Do(t, http.MethodPost, path, "{}"), 404, "not_found_error")
	}
	a := r.Do(t, http.MethodGet, messagesPath, "")
	if messagesError(t, a, 405, "invalid_request_error"); a.Header.Get("Allow") != "POST" {
		t.Errorf("Allow: %q", a.Header.Get("Allow"))
	}
}

// An upstream that breaks off ends the stream with an error event, after which
// nothing comes.
func TestMessagesStreamBreaksOff(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	for name, end := range map[string]func(*upstream.Exchange){
		"dies":   (*upstream.Exchange).Die,
		"resets": (*upstream.Exchange).Reset,
		"error":  func(x *upstream.Exchange) { x.Chunk(upstream.LlamaInStream); x.End() },
		"end":    (*upstream.Exchange).End,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.serve(t, name, func(x *upstream.Exchange) {
				x.Stream()
				x.Chunk(upstream.Role(up(name)))
				x.Chunk(upstream.Delta(up(name), "half an answer"))
				x.Sleep(50 * time.Millisecond)
				end(x)
			})
			a := r.Do(t, http.MethodPost, messagesPath, messagesRequest(name, `,"stream":true`))
			got := names(readEvents(t, a.Body))
			want := []string{"message_start", "ping", "content_block_start", "content_block_delta", "error"}
			if a.Status != 200 || a.Err != nil || !slices.Equal(got, want) {
				t.Errorf("status %d, %v, events %v", a.Status, a.Err, got)
			}
		})
	}
}

// While the upstream is silent the stream is opened and gets pings; what goes
// wrong after that comes as an event.
func TestMessagesPings(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{Translator: serve.Translator{KeepAlive: 100 * time.Millisecond}})
	r.serve(t, "late", func(x *upstream.Exchange) {
		x.Sleep(450 * time.Millisecond)
		upstream.Answer(503, "application/json", upstream.LlamaLoading)(x)
	})
	start := time.Now()
	s := r.Client.Open(t, messagesPath, messagesRequest("late", `,"stream":true`))
	if d := time.Since(start); s.Status != 200 || d > 400*time.Millisecond {
		t.Errorf("status %d after %v", s.Status, d)
	}
	rest, err := s.Rest()
	list := readEvents(t, rest)
	got := names(list)
	if err != nil || len(got) < 4 || len(got) > 8 || got[0] != "message_start" || got[len(got)-1] != "error" ||
		slices.ContainsFunc(got[1:len(got)-1], func(name string) bool { return name != "ping" }) {
		t.Errorf("%v, events %v", err, got)
	}
	if kind := text(list[len(list)-1].Data, "error", "type"); kind != "overloaded_error" {
		t.Errorf("the error is %s", kind)
	}
	// A ping stands between two events, never within one.
	r.serve(t, "slow", func(x *upstream.Exchange) {
		x.Stream()
		x.Chunk(upstream.Role(up("slow")))
		event := upstream.Delta(up("slow"), "half and half")
		x.Chunk(event[:40])
		x.Sleep(450 * time.Millisecond)
		x.Chunk(event[40:] + upstream.Finish(up("slow"), "stop") + upstream.Done)
		x.End()
	})
	a := r.Do(t, http.MethodPost, messagesPath, messagesRequest("slow", `,"stream":true`))
	list = readEvents(t, a.Body)
	pings := 0
	for _, name := range names(list) {
		if name == "ping" {
			pings++
		}
	}
	if m := messagesTurn(t, list); m.Text != "half and half" || pings < 3 || pings > 6 {
		t.Errorf("%d pings, %+v", pings, m)
	}
}

// An upstream's header opens the stream, long before its first event.
func TestMessagesBeginWithTheUpstreamsHeader(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "m", func(x *upstream.Exchange) {
		x.Stream()
		x.Hold(nil)
	})
	start := time.Now()
	s := r.Client.Open(t, messagesPath, messagesRequest("m", `,"stream":true`))
	first, err := s.Next()
	if d := time.Since(start); err != nil || readEvent(t, first).Name != "message_start" || d > 5*time.Second {
		t.Errorf("%q, %v after %v", first, err, d)
	}
	s.Close()
	r.up.WaitRunning(t, 0)
}

// An upstream that cannot stream with tools is asked again for a whole answer,
// which is streamed from there.
func TestMessagesFromAnUpstreamThatDoesNotStream(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "old", func(x *upstream.Exchange) {
		if strings.Contains(string(x.Request.Body), `"stream":true`) {
			upstream.Answer(500, "application/json", `{"error":{"code":500,"message":"Cannot use tools with stream","type":"server_error"}}`)(x)
			return
		}
		upstream.Echo(x)
	})
	r.serve(t, "whole", upstream.Echo)
	for _, name := range []string{"old", "whole"} {
		if m := askMessages(t, r.Client, messagesRequest(name, `,"stream":true`)); !strings.HasSuffix(m.Text, " bytes") || m.Stop != "end_turn" {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// A key that is revoked ends its streams at once, with an error.
func TestMessagesOfARevokedKey(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	id, key := r.Gateway.Key(t, "short-lived", "*")
	r.serve(t, "m", upstream.SlowTokens(5*time.Millisecond, nil))
	s := r.Gateway.Client(t, key).Open(t, messagesPath, messagesRequest("m", `,"stream":true`))
	for range 5 {
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
	}
	r.Revoke(t, id)
	rest, err := s.Rest()
	list := readEvents(t, rest)
	if last := list[len(list)-1]; err != nil || last.Name != "error" || text(last.Data, "error", "type") != "authentication_error" {
		t.Errorf("%v, %v", err, last)
	}
}
