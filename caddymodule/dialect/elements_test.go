package dialect

import (
	"context"
	"strings"
	"testing"
)

// All elements of a request count, of any kind and at any place. TestMaxElements reads
// the maximum number.
func TestElementsAreCounted(t *testing.T) {
	const n = 100
	for _, tt := range []struct {
		name  string
		op    Operation
		input func(n int) string
		other int // elements besides
	}{
		{"messages", messagesOp, listOf(aMessage+",", same(aUser), `]}`), 1},
		{"blocks", messagesOp, listOf(aMessage+`,{"role":"user","content":[`, same(`{"type":"text","text":"a"}`), `]}]}`), 2},
		{"calls", messagesOp, listOf(aMessage+`,{"role":"assistant","content":[`,
			numbered(`{"type":"tool_use","id":"#","name":"f"}`), `]}]}`), 2},
		{
			"blocks of results", messagesOp,
			listOf(aMessage+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[`,
				same(`{"type":"text","text":"a"}`), `]}]}]}`), 3,
		},
		{"blocks of the system", messagesOp, listOf(aMessage+`],"system":[`, same(`{"type":"text","text":"a"}`), `]}`), 1},
		{"tools", messagesOp, listOf(aMessage+`],"tools":[`, same(`{"name":"f"}`), `]}`), 1},
		{"items", responsesOp, listOf(anInput+`,`, same(aUser), `]}`), 1},
		{"calls", responsesOp, listOf(anInput+`,`, same(`{"type":"function_call","call_id":"c","name":"f"}`), `]}`), 1},
		{"parts", responsesOp, listOf(anInput+`,{"role":"user","content":[`, same(`{"type":"input_text","text":"a"}`),
			`]}]}`), 2},
		{"tools", responsesOp, listOf(anInput+`],"tools":[`, same(`{"type":"function","name":"f"}`), `]}`), 1},
		{
			"tools of a namespace", responsesOp,
			listOf(anInput+`],"tools":[{"type":"namespace","name":"n","tools":[`, same(`{"type":"function","name":"f"}`),
				`]}]}`), 2,
		},
		{"additional tools", responsesOp, listOf(anInput+`,{"type":"additional_tools","tools":[`, same(`1`), `]}]}`), 2},
	} {
		c, err := Decode(tt.op, []byte(tt.input(n)), testEnv())
		if err != nil {
			t.Fatalf("%s: %s", tt.name, err.Message)
		}
		got := 0
		switch c := c.(type) {
		case *messagesCall:
			got = c.elements
		case *responsesCall:
			got = c.elements
		}
		if got != n+tt.other {
			t.Errorf("%s: %d elements, not %d", tt.name, got, n+tt.other)
		}
	}
}

// A request may have maxElements. The error for more names the limit and the remedy. In a chat request
// with developer messages, all messages count.
func TestMaxElements(t *testing.T) {
	for _, tt := range []struct {
		name  string
		op    Operation
		input func(n int) string
		other int // elements besides
	}{
		{"messages", messagesOp, listOf(aMessage+`],"tools":[`, same(`{"name":"f"}`), `]}`), 1},
		{"chat", chatOp, listOf(aChat+`,{"role":"developer","content":"a"},`, same(`{}`), `]}`), 2},
	} {
		if _, err := Decode(tt.op, []byte(tt.input(maxElements-tt.other)), testEnv()); err != nil {
			t.Errorf("%s: as many as may be: %s", tt.name, err.Message)
		}
		_, err := Decode(tt.op, []byte(tt.input(maxElements-tt.other+1)), testEnv())
		if err == nil || err.HTTPStatus(tt.op.Dialect) != 400 || !strings.Contains(err.Message, "100,000") ||
			!strings.Contains(err.Message, "split the request") {
			t.Errorf("%s: one more: %v", tt.name, err)
		}
	}
}

// The elements of a chat request are only counted with its tokens.
func TestPromptIsBounded(t *testing.T) {
	body := []byte(listOf(aChat+",", same(`{}`), `]}`)(maxElements + 10))
	c, err := Decode(chatOp, body, testEnv())
	if err != nil {
		t.Fatal(err.Message)
	}
	if n := counter.Estimate("key", c.Prompt()).Tokens; n != 3+4*maxElements+2 { // the first has two words
		t.Errorf("%d tokens", n)
	}
}

// When the client leaves, reading and counting its request stops.
func TestWorkEndsWithItsContext(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		op   Operation
		body string
	}{
		{"messages", messagesOp, listOf(aMessage+",", same(aUser), `]}`)(1000)},
		{"tools", messagesOp, listOf(aMessage+`],"tools":[`, same(`{"name":"f"}`), `]}`)(1000)},
		{"items", responsesOp, listOf(anInput+`,`, same(aUser), `]}`)(1000)},
		{"additional tools", responsesOp, listOf(anInput+`,{"type":"additional_tools","tools":[`, same(`1`), `]}]}`)(1000)},
	} {
		env := testEnv()
		env.Context = ended
		if _, err := Decode(tt.op, []byte(tt.body), env); err == nil {
			t.Errorf("%s: read to the end", tt.name)
		}
	}
}
