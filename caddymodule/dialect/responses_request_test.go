package dialect

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
)

// responsesFieldCases are members of a responses body, those of the upstream's body
// ("" is absent), and those of the response object.
var responsesFieldCases = []struct {
	name, members string
	want, echo    map[string]string
}{
	{
		"nothing is invented", `"metadata":{}`,
		map[string]string{
			"max_tokens": "", "temperature": "", "top_p": "", "stream": "", "reasoning_effort": "",
			"response_format": "", "logprobs": "", "top_logprobs": "", "store": "", "presence_penalty": "",
			"frequency_penalty": "",
		},
		map[string]string{
			"temperature": "1", "top_p": "1", "presence_penalty": "0", "frequency_penalty": "0",
			"top_logprobs": "0", "store": "true", "instructions": "null", "service_tier": `"default"`,
			"truncation": `"disabled"`, "text": `{"format":{"type":"text"}}`,
		},
	},
	{
		"instructions", `"instructions":"i"`,
		map[string]string{"messages": `[{"role":"system","content":"i"},{"role":"user","content":"u"}]`},
		map[string]string{"instructions": `"i"`},
	},
	{"empty instructions", `"instructions":""`, map[string]string{"messages": `[{"role":"user","content":"u"}]`}, nil},
	{
		"max_output_tokens", `"max_output_tokens":7`,
		map[string]string{"max_tokens": "7", "max_output_tokens": "", "max_completion_tokens": ""},
		map[string]string{"max_output_tokens": "7"},
	},
	{
		"sampling, as it was written", `"temperature":0.10,"top_p":1e-1,"presence_penalty":0.5,"frequency_penalty":-0.5`,
		map[string]string{"temperature": "0.10", "top_p": "1e-1", "presence_penalty": "0.5", "frequency_penalty": "-0.5"},
		map[string]string{"temperature": "0.10", "top_p": "1e-1", "presence_penalty": "0.5", "frequency_penalty": "-0.5"},
	},
	{
		"streamed", `"stream":true,"stream_options":{"include_obfuscation":false}`,
		map[string]string{"stream": "true", "stream_options": `{"include_usage":true}`},
		nil,
	},
	{
		"text", `"text":{"format":{"type":"text"},"verbosity":"low"}`,
		map[string]string{"response_format": "", "verbosity": ""},
		map[string]string{"text": `{"format":{"type":"text"},"verbosity":"low"}`},
	},
	{
		"verbosity alone", `"text":{"verbosity":"low"}`,
		map[string]string{"response_format": ""},
		map[string]string{"text": `{"format":{"type":"text"},"verbosity":"low"}`},
	},
	{
		"an object", `"text":{"format":{"type":"json_object"}}`,
		map[string]string{"response_format": `{"type":"json_object"}`},
		map[string]string{"text": `{"format":{"type":"json_object"}}`},
	},
	{
		"a schema", `"text":{"format":{"type":"json_schema","name":"n","description":"d","schema":{"type":"object","b":1,` +
			`"a":2},"strict":false}}`,
		map[string]string{"response_format": `{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object",` +
			`"b":1,"a":2},"strict":false,"description":"d"}}`},
		nil,
	},
	{
		"a schema and no more", `"text":{"format":{"type":"json_schema","name":"n","schema":{}}}`,
		map[string]string{"response_format": `{"type":"json_schema","json_schema":{"name":"n","schema":{}}}`},
		nil,
	},
	{
		"effort", `"reasoning":{"effort":"medium","summary":"auto","generate_summary":"x","mode":"y","context":"z"}`,
		map[string]string{"reasoning_effort": `"medium"`, "reasoning": ""},
		map[string]string{"reasoning": `{"effort":"medium","summary":"auto","generate_summary":"x","mode":"y",` +
			`"context":"z"}`},
	},
	{
		"minimal effort", `"reasoning":{"effort":"minimal"}`,
		map[string]string{"reasoning_effort": `"low"`},
		map[string]string{"reasoning": `{"summary":null,"effort":"minimal"}`},
	},
	{"much effort", `"reasoning":{"effort":"xhigh"}`, map[string]string{"reasoning_effort": `"high"`}, nil},
	{"most effort", `"reasoning":{"effort":"max"}`, map[string]string{"reasoning_effort": `"high"`}, nil},
	{"no effort at all", `"reasoning":{"effort":"none"}`, map[string]string{"reasoning_effort": `"none"`}, nil},
	{
		"effort null", `"reasoning":{"effort":null,"summary":"auto"}`,
		map[string]string{"reasoning_effort": ""},
		map[string]string{"reasoning": `{"effort":null,"summary":"auto"}`},
	},
	{
		"include", `"include":["reasoning.encrypted_content","web_search_call.action.sources"]`,
		map[string]string{"include": "", "logprobs": ""},
		nil,
	},
	{
		"include probabilities", `"include":["message.output_text.logprobs"]`,
		map[string]string{"logprobs": "true", "top_logprobs": ""},
		nil,
	},
	{
		"top_logprobs", `"top_logprobs":3`,
		map[string]string{"logprobs": "true", "top_logprobs": "3"},
		map[string]string{"top_logprobs": "3"},
	},
	{"no top_logprobs", `"top_logprobs":0`, map[string]string{"logprobs": "", "top_logprobs": ""}, nil},
	{"not stored", `"store":false`, map[string]string{"store": ""}, map[string]string{"store": "false"}},
	{"truncation", `"truncation":"auto"`, map[string]string{"truncation": ""}, map[string]string{"truncation": `"auto"`}},
	{"metadata", `"metadata":{"a":"b"}`, map[string]string{"metadata": ""}, map[string]string{"metadata": `{"a":"b"}`}},
	{
		"what is dropped",
		`"service_tier":"flex","user":"x","safety_identifier":"s","prompt_cache_key":"k","prompt_cache_options":{},` +
			`"prompt_cache_retention":"24h","moderation":{},"context_management":[],"max_tool_calls":3,"access_programs":[],
		"client_metadata":{"a":1},"never_heard_of":7,"conversation":null,"prompt":null,"background":false,` +
			`"previous_response_id":null`,
		map[string]string{
			"service_tier": "", "user": "", "safety_identifier": "", "prompt_cache_key": "", "prompt_cache_options": "",
			"prompt_cache_retention": "", "moderation": "", "context_management": "",
			"max_tool_calls": "", "access_programs": "", "client_metadata": "", "never_heard_of": "", "conversation": "",
			"prompt": "", "background": "", "previous_response_id": "",
		},
		map[string]string{
			"service_tier": `"default"`, "user": "null", "safety_identifier": `"s"`, "prompt_cache_key": `"k"`,
			"max_tool_calls": "3", "previous_response_id": "null", "background": "false",
		},
	},
}

func TestResponsesFields(t *testing.T) {
	answer := wholeBody(`"content":"a"`, `"stop"`, "")
	for _, c := range responsesFieldCases {
		t.Run(c.name, func(t *testing.T) {
			body := `{"model":"public","input":"u",` + c.members + `}`
			checkFields(t, upstreamFields(t, responsesOp, body), c.want)

			told, _, fault := decodeCase(t, Responses, body).Answer([]byte(answer))
			if fault != nil {
				t.Fatal(fault.Message)
			}
			var response map[string]json.RawMessage
			if err := json.Unmarshal(told, &response); err != nil {
				t.Fatal(err)
			}
			checkFields(t, response, c.echo)
		})
	}
}

func TestResponsesInput(t *testing.T) {
	for _, c := range []struct{ name, members, messages string }{
		{"a string", `"input":"u"`, `[{"role":"user","content":"u"}]`},
		{"an empty string", `"input":""`, `[{"role":"user","content":""}]`},
		{"no items", `"input":[]`, `[{"role":"user","content":""}]`},
		{"an empty string with instructions", `"input":"","instructions":"i"`, `[{"role":"system","content":"i"}]`},
		{
			"instructions and developer", `"instructions":"I","input":[{"role":"developer","content":"D"},` + itemU + `]`,
			"[" + saying("system", "I\n\nD") + "," + chatU + "]",
		},
		{"no items with instructions", `"input":[],"instructions":"i"`, `[{"role":"system","content":"i"}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkFields(t, upstreamFields(t, responsesOp, `{"model":"public",`+c.members+`}`),
				map[string]string{"messages": c.messages})
		})
	}
}

// responsesFaults are bodies that are refused, with the param, the code and a part of the message of
// the error.
var responsesFaults = []struct{ name, body, param, code, message string }{
	{"no model", `{"input":"u"}`, "model", "missing_required_parameter", ""},
	{"model of another type", `{"model":7,"input":"u"}`, "model", "invalid_type", ""},
	{"no input", `{"model":"m"}`, "input", "missing_required_parameter", ""},
	{"input of another type", `{"model":"m","input":7}`, "input", "invalid_type", ""},
	{"no tokens at all", `{"model":"m","input":"u","max_output_tokens":0}`, "max_output_tokens", "", ""},
	{"stream of another type", `{"model":"m","input":"u","stream":1}`, "stream", "invalid_type", ""},
	{
		"a schema that is missing", `{"model":"m","input":"u","text":{"format":{"type":"json_schema","name":"n"}}}`,
		"text.format.schema", "missing_required_parameter", "",
	},
	{"another format", `{"model":"m","input":"u","text":{"format":{"type":"xml"}}}`, "text.format.type", "", ""},
	{"too many top_logprobs", `{"model":"m","input":"u","top_logprobs":21}`, "top_logprobs", "", ""},
	{"conversation", `{"model":"m","input":"u","conversation":"conv_1"}`, "conversation", "unsupported_parameter", ""},
	{"prompt", `{"model":"m","input":"u","prompt":{"id":"p"}}`, "prompt", "unsupported_parameter", ""},
	{"background", `{"model":"m","input":"u","background":true}`, "background", "unsupported_parameter", ""},
	{
		"a function without a name", `{"model":"m","input":"u","tools":[{"type":"function"}]}`, "tools[0].name",
		"missing_required_parameter", "",
	},
	{"a tool that is not there", `{"model":"m","input":"u","tools":[{"type":"function","name":"a"}],` +
		`"tool_choice":{"type":"function","name":"b"}}`, "tool_choice.name", "", "b"},
	{
		"nothing but a hosted tool", `{"model":"m","input":"u","tools":[{"type":"web_search"}],"tool_choice":"auto"}`,
		"tools[0].type", "unsupported_parameter",
		"Tools of type 'web_search' are not available on this deployment, and the request has no other tool.",
	},
	{
		"nothing but a hosted tool in a namespace",
		`{"model":"m","input":"u","tools":[{"type":"namespace","name":"n","tools":[{"type":"shell"}]}]}`,
		"tools[0].tools[0].type", "unsupported_parameter", "shell",
	},
	{
		"nothing but a hosted tool among the allowed",
		`{"model":"m","input":"u","tools":[{"type":"function","name":"a"}],"tool_choice":{"type":"allowed_tools",` +
			`"mode":"auto","tools":[{"type":"web_search"}]}}`, "tool_choice.tools[0].type", "unsupported_parameter",
		"web_search",
	},
	{"a hosted tool", `{"model":"m","input":"u","tools":[{"type":"web_search"},{"type":"function","name":"a"}],` +
		`"tool_choice":{"type":"web_search"}}`, "tool_choice.type", "", "web_search"},
	{"nothing to require", `{"model":"m","input":"u","tools":[],"tool_choice":"required"}`, "tool_choice", "", ""},
	{
		"a namespace without a name", `{"model":"m","input":"u","tools":[{"type":"namespace","tools":[]}]}`, "tools[0].name",
		"missing_required_parameter", "",
	},
	{"another choice", `{"model":"m","input":"u","tool_choice":"some"}`, "tool_choice", "", "some"},
	{
		"a tool that is not there among the allowed",
		`{"model":"m","input":"u","tools":[{"type":"function","name":"a"}],"tool_choice":{"type":"allowed_tools",` +
			`"mode":"auto","tools":[{"type":"function","name":"b"}]}}`, "tool_choice.tools[0].name", "", "b",
	},
	{
		"the response before, which is not kept", `{"model":"m","input":"u","previous_response_id":"resp_9"}`,
		"previous_response_id", "previous_response_not_found", "Previous response with id 'resp_9' not found.",
	},
	{"not an object", `"u"`, "", "invalid_type", ""},
	{"broken", `{"model":"m","input":["u"}`, "", "", "not valid JSON"},
}

func TestResponsesFaults(t *testing.T) {
	for _, c := range responsesFaults {
		t.Run(c.name, func(t *testing.T) { checkFault(t, c.body, c.param, c.code, c.message) })
	}
}

// keptEnv is an environment in which responses are kept for an account.
func keptEnv(store *kept.Store, account string) *Env {
	env := testEnv()
	env.Kept, env.Account = viewOf(store, account, "key"), account
	env.NewID = NewID
	return env
}

// respond decodes and answers a request. It returns the id of the response and the
// upstream's messages.
func respond(t *testing.T, env *Env, body, message string) (id, messages string) {
	t.Helper()
	c, fault := Decode(responsesOp, []byte(body), env)
	if fault != nil {
		t.Fatalf("%s\n%s", fault.Message, body)
	}
	up, err := io.ReadAll(c.Body("up"))
	if err != nil {
		t.Fatal(err)
	}
	told, _, fault := c.Answer([]byte(wholeBody(message, `"stop"`, "")))
	if fault != nil {
		t.Fatal(fault.Message)
	}
	var response struct{ ID string }
	if err := json.Unmarshal(told, &response); err != nil {
		t.Fatal(err)
	}
	_, messages, _ = strings.Cut(string(up), `"messages":`)
	return response.ID, strings.TrimSuffix(messages, "}")
}

// A kept response and its input precede the input of the next one, without its instructions.
func TestPreviousResponse(t *testing.T) {
	now := time.Unix(1700000000, 0)
	store := kept.NewStore(func() time.Time { return now })
	env := keptEnv(store, "acme")
	one, up := respond(t, env, `{"model":"public","input":"u1","instructions":"first"}`,
		`"content":"","reasoning_content":"hm","tool_calls":[{"id":"a","type":"function","function":{"name":"f",`+
			`"arguments":"{}"}}]`)
	want := saying("system", "first") + "," + saying("user", "u1")
	if up != "["+want+"]" {
		t.Errorf("first: %s", up)
	}
	two, up := respond(t, env, `{"model":"public","previous_response_id":"`+one+`","input":[`+itemOutput("a", `"r"`)+`]}`,
		`"content":"a2"`)
	want = saying("user", "u1") + "," + chatCall("", thought, [3]string{"a", "f", "{}"}) + "," + toolSays("a", "r")
	if up != "["+want+"]" {
		t.Errorf("second: %s", up)
	}
	_, up = respond(t, env, `{"model":"public","previous_response_id":"`+two+`","input":"u3"}`, `"content":"a3"`)
	want += "," + saying("assistant", "a2") + "," + saying("user", "u3")
	if up != "["+want+"]" {
		t.Errorf("third: %s", up)
	}

	const notFound = "not found. Responses are kept for 30 minutes by the gateway that created them, those with more " +
		"than 8 MiB of input and output not at all; send the whole conversation in input instead of previous_response_id."
	refused := func(env *Env, id string) {
		t.Helper()
		_, fault := Decode(responsesOp, []byte(`{"model":"public","input":"u","previous_response_id":"`+id+`"}`), env)
		if fault == nil || fault.Code != "previous_response_not_found" ||
			fault.Message != "Previous response with id '"+id+"' "+notFound {
			t.Errorf("%s: %v", id, fault)
		}
	}
	refused(keptEnv(store, "other"), two)
	three, _ := respond(t, env, `{"model":"public","input":"u","store":false}`, `"content":"a"`)
	refused(env, three)
	now = now.Add(kept.TTL)
	refused(env, two)
}

// Only their account can refer to kept items.
func TestItemReference(t *testing.T) {
	store := kept.NewStore(func() time.Time { return time.Unix(1700000000, 0) })
	env := keptEnv(store, "acme")
	id, _ := respond(t, env, `{"model":"public","input":[{"id":"msg_u","role":"user","content":"u1"}]}`,
		`"content":"a1","reasoning_content":"hm"`)
	r, ok := env.Kept.Response(id)
	if !ok || len(r.Output) != 2 || len(r.Input) != 1 {
		t.Fatalf("%v %+v", ok, r)
	}
	references := `{"id":"msg_u"}`
	for _, raw := range r.Output {
		references += `,{"type":"item_reference","id":"` + jsonscan.Text(raw, "id") + `"}`
	}
	body := `{"model":"public","input":[` + references + `,{"role":"user","content":"u2"}]}`
	_, up := respond(t, env, body, `"content":"a2"`)
	if want := "[" + saying("user", "u1") + `,{"role":"assistant","content":"a1"` + thought + "}," +
		saying("user", "u2") + "]"; up != want {
		t.Errorf("\n got %s\nwant %s", up, want)
	}
	_, fault := Decode(responsesOp, []byte(body), keptEnv(store, "other"))
	if fault == nil || !strings.HasPrefix(fault.Message, "Item with id 'msg_u' not found.") {
		t.Errorf("%v", fault)
	}
}
