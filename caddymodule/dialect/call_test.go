package dialect

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// A chat request is sent unchanged by the same interface as those of the other dialects.
func TestChatCall(t *testing.T) {
	const body = `{"model":"public","stream":true,"messages":[{"role":"user","content":"u"}],` +
		`"tools":[{"type":"function"}],"x":1}`
	c := mustDecode(t, chatOp, body, testEnv())
	if !c.Streamed() {
		t.Error("not streamed")
	}
	if up := upstreamBody(t, c); up != strings.Replace(strings.Replace(body, "public", "up", 1), "true,",
		`true,"stream_options":{"include_usage":true},`, 1) {
		t.Error(up)
	}
	if messages, tools := promptText(c.Prompt()); messages != "["+saying("user", "u")+"]" ||
		tools != `[{"type":"function"}]` {
		t.Errorf("%s, tools %s", messages, tools)
	}
	s := c.NewStream()
	if ping := s.Ping(); string(ping) != ": ping\n\n" {
		t.Errorf("ping %q", ping)
	}
	out := string(s.Feed([]byte(contentChunk("a") + finishChunk("stop"))))
	out += string(s.End(nil))
	if !strings.Contains(out, `"model":"public"`) || !strings.HasSuffix(out, doneEvent) || !s.Done() || s.Err() != nil {
		t.Error(out)
	}
	told, usage, fault := c.Answer([]byte(wholeBody(`"content":"a"`, `"stop"`, "")))
	if fault != nil || !strings.Contains(string(told), `"model":"public"`) || usage.PromptTokens != 100 {
		t.Errorf("%s, %+v, %v", told, usage, fault)
	}
}

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
	env, asked := testEnv(), 0
	env.Estimate = func(model string, p *tokens.Prompt) int {
		messages, _ := promptText(p)
		if asked++; model != "public" || messages != "["+saying("user", "u")+"]" {
			t.Errorf("%s %s", model, messages)
		}
		return 1234
	}
	c := mustDecode(t, messagesOp, messagesBody(`"messages":[{"role":"user","content":"u"}]`), env)
	for range 2 {
		if begin := string(c.NewStream().Ping()); !strings.Contains(begin, `"input_tokens":1234`) {
			t.Error(begin)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
