package dialect

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
)

// Decode reads a request in both steps, with what env keeps, for a deployment with the options of env.
func Decode(op Operation, body []byte, env *Env) (Call, *Error) {
	head, err := ReadHead(op, body, env)
	if err != nil {
		return nil, err
	}
	for i := range head.References {
		if _, found := head.References[i].Find(env.Kept); !found {
			break
		}
	}
	return head.Decode(env.Options)
}

// envWithOptions is testEnv for a deployment with options.
func envWithOptions(o compat.Options) *Env {
	env := testEnv()
	env.Options = o
	return env
}

// fieldsWithOptions is upstreamFields for a deployment with options.
func fieldsWithOptions(t *testing.T, op Operation, body string, o compat.Options) map[string]json.RawMessage {
	t.Helper()
	up := upstreamBody(t, mustDecode(t, op, body, envWithOptions(o)))
	if err := strictJSON([]byte(up)); err != nil {
		t.Fatalf("%v in %s", err, up)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(up), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func TestReasoningEffort(t *testing.T) {
	on := compat.Options{Reasoning: true}
	for _, c := range []struct{ members, want string }{
		{`"thinking":{"type":"disabled"}`, `"none"`},
		{`"thinking":{"type":"disabled"},"output_config":{"effort":"high"}`, `"none"`},
		{`"thinking":{"type":"enabled","budget_tokens":4095}`, `"low"`},
		{`"thinking":{"type":"enabled","budget_tokens":4096}`, `"medium"`},
		{`"thinking":{"type":"enabled","budget_tokens":16383}`, `"medium"`},
		{`"thinking":{"type":"enabled","budget_tokens":16384}`, `"high"`},
		{`"thinking":{"type":"enabled","budget_tokens":99999}`, `"high"`}, // more than max_tokens, which is not our affair
		{`"thinking":{"type":"enabled","budget_tokens":31999},"output_config":{"effort":"low"}`, `"low"`},
		{`"thinking":{"type":"enabled"}`, ""},
		{`"thinking":{"type":"enabled","budget_tokens":"many"}`, ""},
		{`"thinking":{"type":"adaptive"}`, ""},
		{`"thinking":{"type":"adaptive","display":"omitted"},"output_config":{"effort":"medium"}`, `"medium"`},
		{`"thinking":{"type":"between_tools"},"output_config":{"effort":"minimal"}`, `"low"`},
		{`"output_config":{"effort":"xhigh"}`, `"high"`},
		{`"output_config":{"effort":"max"}`, `"high"`},
		{`"output_config":{"effort":7}`, ""},
		{`"thinking":null,"output_config":null`, ""},
		{`"thinking":[],"output_config":"high"`, ""},
		{`"temperature":1`, ""},
	} {
		body := messagesBody(`"messages":[{"role":"user","content":"u"}],` + c.members)
		checkFields(t, fieldsWithOptions(t, messagesOp, body, on),
			map[string]string{"reasoning_effort": c.want, "thinking": ""})
		checkFields(t, fieldsWithOptions(t, messagesOp, body, compat.Options{}), map[string]string{"reasoning_effort": ""})
	}
	// Responses and chat have fields for the effort, which are always sent.
	for _, o := range []compat.Options{{}, on} {
		checkFields(t, fieldsWithOptions(t, responsesOp, responsesBody(`"input":"u","reasoning":{"effort":"xhigh"}`), o),
			map[string]string{"reasoning_effort": `"high"`})
		checkFields(t, fieldsWithOptions(t, chatOp,
			`{"model":"public","messages":[],"reasoning_effort":"xhigh","thinking":{"type":"disabled"}}`, o),
			map[string]string{"reasoning_effort": `"xhigh"`, "thinking": `{"type":"disabled"}`})
	}
}

// The chat dialect is the upstream's own, so the client's effort is unchanged.
func TestChatIsNotTouched(t *testing.T) {
	body := `{"model":"public","messages":[{"role":"user","content":"u"},{"role":"system","content":"x"},` +
		`{"role":"user","content":[{"type":"file","file":{}}]}]}`
	all := compat.Options{Reasoning: true, FileParts: true, ThinkTags: true, RemoteMedia: compat.RemoteAllow}
	up := upstreamBody(t, mustDecode(t, chatOp, body, envWithOptions(all)))
	if want := strings.Replace(body, `"public"`, `"up"`, 1); up != want {
		t.Errorf("%s\nwant %s", up, want)
	}
	answer := wholeBody(`"content":"<think>hm</think>Hi"`, `"stop"`, "")
	out, _, err := mustDecode(t, chatOp, body, envWithOptions(all)).Answer([]byte(answer))
	if want := strings.Replace(answer, `"up"`, `"public"`, 1); err != nil || string(out) != want {
		t.Errorf("%s\nwant %s", out, want)
	}
}

// Without the effort, the rest of the request is unchanged.
func TestDropEffort(t *testing.T) {
	const talk = `"messages":[{"role":"user","content":"u"}],"temperature":0.5`
	const effort = `,"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}}`
	for _, c := range []struct{ name, with, without string }{
		{"messages", messagesBody(talk + effort), messagesBody(talk + strings.Replace(effort, `"effort":"low",`, "", 1))},
		{
			"responses", responsesBody(`"input":"u","temperature":0.5,"reasoning":{"effort":"low"},"top_logprobs":2`),
			responsesBody(`"input":"u","temperature":0.5,"top_logprobs":2`),
		},
	} {
		op := map[string]Operation{"messages": messagesOp, "responses": responsesOp}[c.name]
		env := envWithOptions(compat.Options{Reasoning: true})
		call, plain := mustDecode(t, op, c.with, env), mustDecode(t, op, c.without, env)
		if plain.DropEffort() || !call.DropEffort() || call.DropEffort() {
			t.Errorf("%s: an effort is dropped that there is not, or it is kept", c.name)
		}
		if got, want := upstreamBody(t, call), upstreamBody(t, plain); got != want {
			t.Errorf("%s: %s\nwant %s", c.name, got, want)
		}
	}
	if mustDecode(t, chatOp, `{"model":"public","messages":[],"reasoning_effort":"low"}`,
		envWithOptions(compat.Options{})).DropEffort() {
		t.Error("a chat request does not go through as it is")
	}
}

const (
	casePDF = `{"type":"document","title":"Q3.pdf","source":{"type":"base64","media_type":"application/pdf",` +
		`"data":"JVBERi0="}}`
	chatPDF  = `{"type":"file","file":{"filename":"Q3.pdf","file_data":"data:application/pdf;base64,JVBERi0="}}`
	inputPDF = `{"type":"input_file","filename":"Q3.pdf","file_data":"data:application/pdf;base64,JVBERi0="}`
)

func TestFileParts(t *testing.T) {
	on := compat.Options{FileParts: true}
	call := `{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f",` +
		`"input":{}}]},`
	for _, c := range []struct {
		name string
		op   Operation
		body string
		want string // "" if it is refused all the same
	}{
		{"a document", messagesOp, messagesBody(`"messages":[{"role":"user","content":[{"type":"text","text":"a"},` +
			casePDF + `]}]`), userSays(`{"type":"text","text":"a"},` + chatPDF)},
		{
			"a document without a title", messagesOp,
			messagesBody(`"messages":[{"role":"user","content":[` +
				strings.Replace(casePDF, `"title":"Q3.pdf",`, `"title":null,`, 1) + `]}]`),
			userSays(strings.Replace(chatPDF, "Q3.pdf", "document.pdf", 1)),
		},
		{
			"a document of a result", messagesOp,
			messagesBody(`"messages":[` + call +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"r"},` +
				casePDF + `]}]}]`),
			chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}) + "," + toolSays("a", "r\n[file]") + "," +
				userSays(chatPDF),
		},
		{
			"a document by its address", messagesOp,
			messagesBody(`"messages":[{"role":"user","content":[{"type":"document","source":{"type":"url",` +
				`"url":"https://example.com/a.pdf"}}]}]`), "",
		},
		{
			"a document by its id", messagesOp,
			messagesBody(`"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}]`),
			"",
		},
		{
			"a document without data", messagesOp,
			messagesBody(`"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64",` +
				`"media_type":"application/pdf","data":""}}]}]`), "",
		},
		{"a file", responsesOp, responsesBody(`"input":[` + itemMessage("user", inputPDF) + `]`), userSays(chatPDF)},
		{
			"a file without a name", responsesOp,
			responsesBody(`"input":[` +
				itemMessage("user", strings.Replace(strings.Replace(inputPDF, `"filename":"Q3.pdf",`, "", 1), "application/pdf",
					"application/zip", 1)) + `]`),
			userSays(`{"type":"file","file":{"filename":"document","file_data":"data:application/zip;base64,JVBERi0="}}`),
		},
		{
			"a file of a result", responsesOp,
			responsesBody(`"input":[` + itemU + "," + itemCallA + "," + itemOutput("a", "["+inputPDF+"]") + `]`),
			chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}) + "," + toolSays("a", "[file]") + "," + userSays(chatPDF),
		},
		{
			"a file by its address", responsesOp,
			responsesBody(`"input":[` + itemMessage("user", `{"type":"input_file","file_url":"https://example.com/a.pdf"}`) +
				`]`), "",
		},
		{
			"a file that is not whole", responsesOp,
			responsesBody(`"input":[` +
				itemMessage("user", `{"type":"input_file","file_data":"data:application/pdf;base64,J"}`) + `]`), "",
		},
		{
			"a file of the system", responsesOp,
			responsesBody(`"input":[` + itemU + "," + itemMessage("developer", inputPDF) + `]`), "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Decode(c.op, []byte(c.body), testEnv()); err == nil || err.HTTPStatus(c.op.Dialect) != 400 {
				t.Errorf("by default: %v, want a 400", err)
			}
			if c.want == "" {
				if _, err := Decode(c.op, []byte(c.body), envWithOptions(on)); err == nil || err.HTTPStatus(c.op.Dialect) != 400 {
					t.Errorf("%v, want a 400", err)
				}
				return
			}
			checkFields(t, fieldsWithOptions(t, c.op, c.body, on), map[string]string{"messages": "[" + c.want + "]"})
		})
	}
	// All model servers support text.
	text := strings.NewReplacer("application/pdf", "text/plain", "JVBERi0=", "YQ==").Replace(casePDF)
	checkFields(t, fieldsWithOptions(t, messagesOp, messagesBody(`"messages":[{"role":"user","content":[`+text+`]}]`), on),
		map[string]string{
			"messages": "[" + saying("user", "<document title=\"Q3.pdf\">\na\n</document>") + "]",
		})
}
