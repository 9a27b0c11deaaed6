package serve

import (
	"bytes"
	"context"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect"
)

// A count that the end of the request has cut short is too low, and is not recorded.
func TestEstimateOfEndedRequest(t *testing.T) {
	c, _ := testCompletion(t, dialect.Messages)
	body := []byte(`{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"` + string(bytes.Repeat([]byte("some words "), 1000)) + `"}]}`)
	call, derr := dialect.Decode(c.exchange.Operation, body, &dialect.Env{Context: t.Context()})
	if derr != nil {
		t.Fatal(derr)
	}
	c.call, c.size = call, int64(len(body))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	c.ctx = ended
	c.estimate("", call.Prompt())
	c.book(dialect.Usage{CompletionTokens: 3, Estimated: true})
	if n := c.exchange.Usage.PromptTokens; n < 1500 {
		t.Errorf("a prompt of 2000 words is recorded with %d tokens", n)
	}
}
