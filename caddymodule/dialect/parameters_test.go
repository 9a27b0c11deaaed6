package dialect

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/tests/rig/race"
)

// optionsOf are options from name and value in turn.
func optionsOf(t testing.TB, pairs ...string) (o compat.Options) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if err := o.Set(pairs[i], pairs[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

const (
	aQwen = `{"none":{"chat_template_kwargs":{"enable_thinking":false}},` +
		`"high":{"chat_template_kwargs":{"enable_thinking":true}},"max":{"chat_template_kwargs":{"enable_thinking":true}}}`
	aGPT  = `{"none":"low","minimal":"low","xhigh":"high","max":"high"}`
	aTool = `"tools":[{"name":"f","input_schema":{}}],` +
		`"tool_choice":{"type":"auto","disable_parallel_tool_use":false},`
	aLlama = `{"cache_prompt":true,"top_k":40,"min_p":0.05,"max_tokens":4096}`
)

// The options' parameters are in the bodies for the model server, by precedence. Members are compared in any order.
func TestParameters(t *testing.T) {
	t.Parallel()
	qwen, gpt := optionsOf(t, "efforts", aQwen), optionsOf(t, "efforts", aGPT)
	llama := optionsOf(t, "defaults", aLlama, "force", `{"temperature":0.2}`)
	deep := optionsOf(t, "defaults", `{"a":{"d":1,"x":{"d":2}},"stop":"D","reasoning_effort":"medium","b":{"d":1}}`,
		"efforts", `{"low":{"a":{"e":3,"d":3,"x":{"e":4}}},"high":"huge"}`,
		"force", `{"a":{"f":5,"e":5,"x":{"f":6}},"b":{"f":1}}`)
	chat := func(members string) string { return `{"model":"public","messages":[],` + members + `"stream":false}` }
	messages := func(members string) string {
		return `{"model":"public","max_tokens":7,` + members + `"messages":[{"role":"user","content":"u"}]}`
	}
	for _, c := range []struct {
		name    string
		op      Operation
		options compat.Options
		body    string
		want    string // without model, messages, stream
	}{
		{
			"thinking is off", messagesOp, qwen, messages(`"thinking":{"type":"disabled"},`),
			`{"max_tokens":7,"reasoning_effort":null,"chat_template_kwargs":{"enable_thinking":false}}`,
		},
		{
			"effort of messages", messagesOp, qwen, messages(`"output_config":{"effort":"max"},"temperature":1,`),
			`{"max_tokens":7,"temperature":1,"reasoning_effort":null,"chat_template_kwargs":{"enable_thinking":true}}`,
		},
		{"effort that is not mapped", messagesOp, qwen, messages(`"output_config":{"effort":"low"},`), `{"max_tokens":7}`},
		{
			"effort that is not mapped but supported", messagesOp, optionsOf(t, "efforts", aQwen, "reasoning", "true"),
			messages(`"output_config":{"effort":"xhigh"},`), `{"max_tokens":7,"reasoning_effort":"high"}`,
		},
		{
			"effort of responses", responsesOp, qwen, `{"model":"public","input":"u","reasoning":{"effort":"none"}}`,
			`{"reasoning_effort":null,"chat_template_kwargs":{"enable_thinking":false}}`,
		},
		{
			"effort of chat", chatOp, qwen, chat(`"reasoning_effort":"none","chat_template_kwargs":{"x":1},`),
			`{"reasoning_effort":null,"chat_template_kwargs":{"x":1,"enable_thinking":false}}`,
		},
		{
			"effort of chat at the end", chatOp, qwen, `{"model":"public","messages":[],"reasoning_effort" : "none" }`,
			`{"reasoning_effort":null,"chat_template_kwargs":{"enable_thinking":false}}`,
		},
		{
			"effort of chat as an object", chatOp, qwen, chat(`"reasoning":{"effort":"none"},`),
			`{"reasoning":{"effort":"none"}}`,
		},
		{
			"name for messages", messagesOp, gpt, messages(`"thinking":{"type":"disabled"},`),
			`{"max_tokens":7,"reasoning_effort":"low"}`,
		},
		{
			"name for responses", responsesOp, gpt, `{"model":"public","input":"u","reasoning":{"effort":"xhigh"}}`,
			`{"reasoning_effort":"high"}`,
		},
		{"name for chat", chatOp, gpt, chat(`"reasoning_effort":"max",`), `{"reasoning_effort":"high"}`},
		{"other effort of chat", chatOp, gpt, chat(`"reasoning_effort":"medium",`), `{"reasoning_effort":"medium"}`},
		{"null effort", chatOp, gpt, chat(`"reasoning_effort":null,`), `{"reasoning_effort":null}`},
		{
			"llama.cpp", chatOp, llama, chat(`"top_k":null,"min_p":0,"temperature":2,`),
			`{"cache_prompt":true,"top_k":40,"min_p":0,"temperature":0.2,"max_tokens":4096}`,
		},
		{
			"llama.cpp with messages", messagesOp, llama, messages(`"top_k":3,"temperature":2,`),
			`{"cache_prompt":true,"top_k":3,"min_p":0.05,"temperature":0.2,"max_tokens":7}`,
		},
		{
			"llama.cpp with responses", responsesOp, llama, `{"model":"public","input":"u"}`,
			`{"cache_prompt":true,"top_k":40,"min_p":0.05,"temperature":0.2,"max_tokens":4096}`,
		},
		{
			"a limit of the client", chatOp, llama, chat(`"n_predict":5,`),
			`{"cache_prompt":true,"top_k":40,"min_p":0.05,"temperature":0.2,"n_predict":5}`,
		},
		{
			"depth", chatOp, deep, chat(`"a":{"c":9,"d":9,"e":9,"x":{"c":8,"\u0064":null,"f":8}},"stop":[],` +
				`"reasoning_effort":"low",`),
			`{"a":{"c":9,"d":3,"e":5,"f":5,"x":{"c":8,"d":2,"e":4,"f":6}},"stop":[],"b":{"d":1,"f":1},` +
				`"reasoning_effort":null}`,
		},
		{
			"depth without objects of the client", chatOp, deep, chat(`"a":null,"b":{},"reasoning_effort":"high",`),
			`{"a":{"d":1,"e":5,"f":5,"x":{"d":2,"f":6}},"stop":"D","b":{"d":1,"f":1},"reasoning_effort":"huge"}`,
		},
		{
			"other values of the client", chatOp, deep, chat(`"a":7,"b":"x","reasoning_effort":null,`),
			`{"a":{"e":5,"f":5,"x":{"f":6}},"b":{"f":1},"stop":"D","reasoning_effort":"medium"}`,
		},
		{
			"tools of the client", messagesOp, optionsOf(t, "force", `{"parallel_tool_calls":false}`),
			messages(aTool),
			`{"max_tokens":7,"parallel_tool_calls":false,"tool_choice":"auto"}`,
		},
		{
			"parallel calls by default", messagesOp, optionsOf(t, "defaults", `{"parallel_tool_calls":false}`),
			messages(aTool),
			`{"max_tokens":7,"parallel_tool_calls":true,"tool_choice":"auto"}`,
		},
		{
			"completions",
			Operation{Kind: Completions, Dialect: Chat},
			llama, `{"model":"public","prompt":"x"}`,
			`{"prompt":"x"}`,
		},
		{
			"embeddings",
			Operation{Kind: Embeddings, Dialect: Chat},
			llama, `{"model":"public","input":"x"}`,
			`{"input":"x"}`,
		},
	} {
		call := mustDecode(t, c.op, c.body, envWithOptions(c.options))
		for range 2 { // also for the next attempt
			fields := upstreamObject(t, call.Body("up"))
			for _, name := range []string{"model", "messages", "stream", "tools"} {
				delete(fields, name)
			}
			if got := encoded(t, fields); got != sorted(t, c.want) {
				t.Errorf("%s:\n got %s\nwant %s", c.name, got, sorted(t, c.want))
			}
		}
	}
}

// upstreamObject reads a body, which must be valid JSON without duplicates.
func upstreamObject(t testing.TB, s *Segments) (fields map[string]any) {
	t.Helper()
	body, _ := io.ReadAll(s)
	if err := strictJSON(body); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// encoded is a value as JSON with sorted members.
func encoded(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sorted is a JSON text with sorted members.
func sorted(t testing.TB, text string) string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return encoded(t, value)
}

// A key's limit lowers the deployment's, and limits reserve what is left.
func TestLimitParameters(t *testing.T) {
	t.Parallel()
	force := func(n string) compat.Options { return optionsOf(t, "force", `{"max_completion_tokens":`+n+`}`) }
	byDefault := optionsOf(t, "defaults", `{"n_predict":300}`)
	const chat = `{"model":"public","messages":[],"max_tokens":20,"n_predict":9999}`
	messages := messagesBody(`"messages":[{"role":"user","content":"u"}]`)
	for _, c := range []struct {
		name      string
		op        Operation
		options   compat.Options
		body      string
		limit     int64 // before the key's
		limited   int64
		maxTokens float64 // without the key's
		lowered   float64
	}{
		{"much of chat", chatOp, force("5000"), chat, 5000, 100, 5000, 100},
		{"little of chat", chatOp, force("50"), chat, 50, 50, 50, 50},
		{"choices", chatOp, force("50"), `{"model":"public","messages":[],"n":4}`, 200, 100, 50, 25},
		{"default of chat", chatOp, byDefault, `{"model":"public","messages":[],"max_tokens":null}`, 300, 100, 300, 100},
		{"other than the default", chatOp, byDefault, `{"model":"public","messages":[],"max_tokens":20}`, 20, 20, 20, 20},
		{"much of messages", messagesOp, force("5000"), messages, 5000, 100, 5000, 100},
		{"little of messages", messagesOp, force("50"), messages, 50, 50, 50, 50},
		{"default of responses", responsesOp, byDefault, `{"model":"public","input":"u"}`, 300, 100, 300, 100},
		{
			"other than the default of responses", responsesOp, byDefault,
			`{"model":"public","input":"u","max_output_tokens":20}`, 20, 20, 20, 20,
		},
	} {
		call := mustDecode(t, c.op, c.body, envWithOptions(c.options))
		before := upstreamObject(t, call.Body("up"))
		if n := call.OutputLimit(); n != c.limit || before["max_tokens"] != c.maxTokens {
			t.Errorf("%s: reserves %d, sends %v", c.name, n, before)
		}
		call.LimitOutput(100)
		after := upstreamObject(t, call.Body("up"))
		if n := call.OutputLimit(); n != c.limited || after["max_tokens"] != c.lowered {
			t.Errorf("%s: with a key's limit: reserves %d, sends %v", c.name, n, after)
		}
		if n := after["n_predict"]; n != nil && n != c.lowered {
			t.Errorf("%s: n_predict is %v", c.name, n)
		}
	}
}

// A model that rejects an effort gets neither it nor its object.
func TestDropEffortParameters(t *testing.T) {
	t.Parallel()
	for _, efforts := range []string{`{"none":{"a":1,"b":{"c":2}}}`, `{"none":"low"}`} {
		o := optionsOf(t, "efforts", efforts, "defaults", `{"b":{"d":1}}`)
		call := mustDecode(t, messagesOp, messagesBody(`"thinking":{"type":"disabled"},"temperature":1,`+
			`"messages":[{"role":"user","content":"u"}]`), envWithOptions(o))
		if !call.DropEffort() || call.DropEffort() {
			t.Error("not dropped once")
		}
		fields := upstreamObject(t, call.Body("up"))
		if got := encoded(t, fields["b"]); got != `{"d":1}` || fields["a"] != nil || fields["reasoning_effort"] != nil ||
			fields["temperature"] != 1.0 {
			t.Errorf("%v", fields)
		}
	}
	call := mustDecode(t, chatOp, `{"model":"public","messages":[],"reasoning_effort":"none"}`,
		envWithOptions(optionsOf(t, "efforts", aQwen)))
	if call.DropEffort() {
		t.Error("a chat request was changed")
	}
}

// A client must send what options set once, and in their spelling, as servers differ in which value they take.
func TestParameterFaults(t *testing.T) {
	t.Parallel()
	o := optionsOf(t, "force", `{"temperature":0,"a":{"b":{"c":1}}}`, "efforts", aGPT)
	for _, c := range []struct{ members, param, part string }{
		{`"temperature":1,"temperature":2`, "temperature", "duplicated"},
		{`"temperature":1,"\u0074emperature":2`, "temperature", "duplicated"},
		{`"Temperature":1`, "temperature", `did you mean "temperature"`},
		{`"a":{"b":1},"a":{"b":1}`, "a", "duplicated"},
		{`"a":{"b":{"c":1,"c":2}}`, "c", "duplicated"},
		{`"a":{"B":{"c":1}}`, "b", `did you mean "b"`},
		{`"reasoning_effort":"max","Reasoning_effort":"max"`, "reasoning_effort", `did you mean "reasoning_effort"`},
		{`"reaſoning_effort":"high","reasoning_effort":"max"`, "reasoning_effort", `did you mean "reasoning_effort"`},
	} {
		body := `{"model":"public","messages":[],` + c.members + `}`
		_, fault := Decode(chatOp, []byte(body), envWithOptions(o))
		if fault == nil || fault.Param != c.param || !strings.Contains(fault.Message, c.part) {
			t.Errorf("%s: %v", body, fault)
		}
		if _, fault := Decode(chatOp, []byte(body), testEnv()); fault != nil {
			t.Errorf("without options: %s: %v", body, fault)
		}
	}
}

// compat knows each name by which servers limit an answer.
func TestLimitNames(t *testing.T) {
	t.Parallel()
	for _, name := range fieldNames[fieldMaxTokens:] {
		var o compat.Options
		if o.Set("defaults", `{"`+name+`":0}`) == nil || o.Set("force", `{"`+name+`":1}`) != nil ||
			o.Set("efforts", `{"low":{"`+name+`":1}}`) == nil {
			t.Errorf("%s is not a limit", name)
		}
	}
	for _, name := range slices.Concat(fieldNames[:fieldMaxTokens], answerNames[:]) {
		var o compat.Options
		if o.Set("force", `{"`+name+`":1}`) == nil {
			t.Errorf("%s can be forced", name)
		}
	}
}

// A deployment without these options costs no allocation.
func TestParametersAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, c := range []struct {
		op   Operation
		body string
		max  float64
	}{
		{chatOp, `{"model":"public","messages":[{"role":"user","content":"u"}],"reasoning_effort":"low","top_k":1}`, 8},
		{messagesOp, messagesBody(`"messages":[{"role":"user","content":"u"}],"temperature":1`), 23},
	} {
		env, body := envWithOptions(compat.Options{}), []byte(c.body)
		n := testing.AllocsPerRun(200, func() {
			call, fault := Decode(c.op, body, env)
			if fault != nil {
				t.Fatal(fault.Message)
			}
			call.Body("up")
		})
		if n > c.max {
			t.Errorf("%s: %.0f allocations", c.op.Dialect, n)
		}
	}
}
