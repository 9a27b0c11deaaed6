package dialect

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// promptText returns the messages and the tools of a prompt.
func promptText(p *tokens.Prompt) (messages, tools string) {
	m, t := p.Text()
	return string(m), string(t)
}

// Requests without messages have no prompt whose tokens could be counted.
func TestOtherCalls(t *testing.T) {
	c := mustDecode(t, Operation{Kind: Embeddings, Dialect: Chat}, `{"model":"public","input":"u"}`, testEnv())
	if c.Prompt() != nil || c.Streamed() {
		t.Errorf("%+v, streamed %v", c.Prompt(), c.Streamed())
	}
	if c, fault := Decode(chatOp, []byte(`{}`), testEnv()); c != nil || fault == nil {
		t.Errorf("%v, %v", c, fault)
	}
}

// A request that counts input tokens is read like one that creates a response. Its prompt, the
// upstream's, is estimated once.
func TestCallPrompt(t *testing.T) {
	for op, body := range map[Operation]string{
		{Kind: CountInputTokens, Dialect: Responses}: `{"model":"public","input":"u","instructions":"i","tools":[` +
			functionB + `]}`,
		countOp: `{"model":"public","system":"i","messages":[{"role":"user","content":"u"}],"tools":[` + toolB + `]}`,
	} {
		messages, tools := promptText(mustDecode(t, op, body, testEnv()).Prompt())
		if messages != "["+saying("system", "i")+","+saying("user", "u")+"]" || tools != "["+chatB+"]" {
			t.Errorf("%s, tools %s", messages, tools)
		}
	}
	env := testEnv()
	env.Estimate = func(p *tokens.Prompt) int {
		if messages, _ := promptText(p); messages != "["+saying("user", "u")+"]" {
			t.Error(messages)
		}
		return 1234
	}
	c := mustDecode(t, messagesOp, messagesBody(`"messages":[{"role":"user","content":"u"}]`), env)
	if begin := string(c.NewStream().Ping()); !strings.Contains(begin, `"input_tokens":1234`) {
		t.Error(begin)
	}
}

// TestConversation checks that the text that distinguishes conversations is bounded, and that it is not
// the system prompt.
func TestConversation(t *testing.T) {
	long := strings.Repeat("x", 2*maxBeginning)
	for _, c := range []struct {
		kind       OperationKind
		dialect    Dialect
		body, want string
	}{
		{
			ChatCompletions, Chat, `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"developer",` +
				`"content":"d"},{"role":"user","content":"one"},{"role":"user","content":"two"}]}`,
			`{"role":"user","content":"one"}`,
		},
		{ChatCompletions, Chat, `{"messages":[{"role":"user","content":"one"}],"prompt_cache_key":"k","model":"m"}`, `"k"`},
		{
			ChatCompletions, Chat, `{"messages":[{"role":"user","content":"one"}],"prompt_cache_key":7,"model":"m"}`,
			`{"role":"user","content":"one"}`,
		},
		{ChatCompletions, Chat, `{"model":"m","messages":[{"role":"system","content":"s"}]}`, ""},
		{ChatCompletions, Chat, `{"model":"m","messages":[]}`, ""},
		{ChatCompletions, Chat, `{"model":"m","messages":[7,{"role":"user"}]}`, "7"},
		{
			ChatCompletions, Chat, `{"model":"m","messages":[{"content":"` + long + `","role":"user"}]}`,
			(`{"content":"` + long)[:maxBeginning],
		},
		{Completions, Chat, `{"model":"m","prompt":"` + long + `"}`, (`"` + long)[:maxPrompt]},
		{Completions, Chat, `{"model":"m"}`, ""},
		{Embeddings, Chat, `{"model":"m","input":"text"}`, ""},
		{
			CreateMessage, Messages, `{"model":"m","max_tokens":1,"system":"s","messages":[{"role":"user","content":"one"}]}`,
			`{"role":"user","content":"one"}`,
		},
		{CreateResponse, Responses, `{"model":"m","instructions":"s","input":"one"}`, `{"role":"user","content":"one"}`},
		{CreateResponse, Responses, `{"model":"m","input":"one","prompt_cache_key":"k"}`, `"k"`},
	} {
		call := mustDecode(t, Operation{Kind: c.kind, Dialect: c.dialect}, c.body, testEnv())
		if got := string(call.Conversation()); got != c.want {
			t.Errorf("%.100s\nis of the conversation %.100s, want %.100s", c.body, got, c.want)
		}
	}
}

// The head has the model and the number of references. Errors of the rest come with the rest: that of an unknown model
// is the first that a client gets.
func TestHead(t *testing.T) {
	for _, c := range []struct {
		op         Operation
		body       string
		references int
		fault      string // of the rest
	}{
		{chatOp, `{"model":"public","messages":[]}`, 0, ""},
		{messagesOp, `{"model":"public","stream":5,"messages":[]}`, 0, "stream"},
		{responsesOp, `{"model":"public","stream":5,"previous_response_id":"resp_1","input":"x"}`, 0, "stream"},
		{responsesOp, `{"model":"public","background":true,"previous_response_id":"resp_1","input":"x"}`, 0, "background"},
		{
			responsesOp, `{"model":"public","previous_response_id":"resp_1","input":[{"type":"item_reference","id":"msg_1"},` +
				`{"type":"item_reference","id":"rs_1"},{"type":"message"},{"type":"item_reference","id":"msg_2"}]}`,
			3, "previous_response_id",
		},
		{
			responsesOp, `{"model":"public","input":[{"type":"item_reference","id":"rs_1"},{"id":"msg_1"},{"type":"message"}]}`,
			2, "input[1].id",
		},
		{
			responsesOp, `{"model":"public","input":[{"type":"item_reference","id":"rs_1"},{"type":"message"}]}`,
			1, "input[1].role",
		},
	} {
		env := testEnv()
		env.Kept = viewOf(kept.NewStore(env.Now), "acme", "key")
		head, err := ReadHead(c.op, []byte(c.body), env)
		if err != nil || head.Model != "public" || len(head.References) != c.references {
			t.Errorf("%s: %+v, %v", c.body, head, err)
			continue
		}
		for i := range head.References {
			if _, found := head.References[i].Find(env.Kept); !found {
				break
			}
		}
		if _, err = head.Decode(compat.Options{}); err == nil && c.fault != "" || err != nil && (c.fault == "" ||
			!strings.Contains(err.Message, c.fault) && err.Param != c.fault) {
			t.Errorf("%s: %v", c.body, err)
		}
	}
}
