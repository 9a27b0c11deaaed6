package dialect

import (
	"io"
	"strings"
	"testing"
)

// Parameters, a default model, a limit and folded messages change one body at once.
func TestAllEdits(t *testing.T) {
	t.Parallel()
	env := envWithOptions(optionsOf(t, "defaults", `{"top_k":1,"max_tokens":100}`,
		"force", `{"temperature":0,"a":{"x":null}}`, "efforts", aQwen))
	env.DefaultModel = "public"
	for _, c := range []struct{ body, want string }{
		{
			"\ufeff \n{ \"messages\" : [] }", " \n{\"top_k\":1,\"temperature\":0,\"a\":{\"x\":null},\"model\":\"up\"," +
				"\"max_tokens\":25, \"messages\" : [] }",
		},
		{
			`{"messages":[{"role":"developer","content":"d"}],"a":{},"reasoning_effort":"none","stream":true}`,
			`{"top_k":1,"temperature":0,"chat_template_kwargs":{"enable_thinking":false},"model":"up","max_tokens":25,` +
				`"messages":[{"role":"system","content":"d"}],"a":{"x":null},"reasoning_effort":null,"stream":true,` +
				`"stream_options":{"include_usage":true}}`,
		},
		{
			`{"messages":[],"max_tokens":0,"n":2,"temperature":null,"a":7,"model":null}`,
			`{"top_k":1,"messages":[],"max_tokens":12,"n":2,"temperature":0,"a":{"x":null},"model":"up"}`,
		},
	} {
		call := mustDecode(t, chatOp, c.body, env)
		call.LimitOutput(25)
		got, _ := io.ReadAll(call.Body("up"))
		if string(got) != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.body, got, c.want)
		}
	}
}

// Objects merge in a bounded number of levels, which may have empty names. Below, those of force replace.
func TestParameterLevels(t *testing.T) {
	t.Parallel()
	nested := func(inner string, levels int) string {
		return strings.Repeat(`{"":`, levels) + inner + strings.Repeat("}", levels)
	}
	for levels, want := range map[int]string{maxMerged: `{"x":1,"y":2}`, maxMerged + 1: `{"y":2}`, 500: `{"y":2}`} {
		force := nested(`{"y":2}`, levels)
		call := mustDecode(t, chatOp, `{"model":"public","messages":[],"":`+nested(`{"x":1}`, levels-1)+`}`,
			envWithOptions(optionsOf(t, "force", force, "defaults", force)))
		fields := upstreamObject(t, call.Body("up"))
		if got := encoded(t, fields[""]); got != nested(want, levels-1) {
			t.Errorf("%d levels: %s", levels, got)
		}
	}
}
