package dialect

import (
	"strings"
	"testing"
)

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
