package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

const messagesPath = "/v1/messages"

// messagesRequest is a request of the messages dialect with the Prompt; more
// is spliced in.
func messagesRequest(model, more string) string {
	return fmt.Sprintf(`{"model":%s,"max_tokens":100,"messages":[{"role":"user","content":%s}]%s}`, harness.Quote(model),
		harness.Quote(harness.Prompt), more)
}

// A turn is an answer of a model in any dialect, streamed or whole.
type turn struct {
	Text, Thinking string
	Calls          []toolCall
	Stop           string
	Input          int // tokens of the prompt, with those from the server's cache
	Raw            any // the answer as the next request contains it
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

// promptTokens returns the size of the prompt by the usage of a message. Cached tokens are not among the input
// tokens.
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
		t.Errorf("request id %q in the body, %q and %q in headers", id, a.Header.Get("request-id"),
			a.Header.Get("x-request-id"))
	}
	return text(e, "error", "message")
}
