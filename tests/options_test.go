package tests

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// serveAs is serve for a model server that has to be treated in a way of its
// own.
func (r *rig) serveAs(t *testing.T, name string, h upstream.Handler, options map[string]any) {
	t.Helper()
	r.up.Handle(up(name), h)
	r.Manage(t, http.MethodPut, "/deployments/"+name, map[string]any{"connector": r.con.ID, "model": up(name), "options": options}, nil)
}

// sent is the body of the request that came to the upstream last.
func (r *rig) sent(t *testing.T) any {
	t.Helper()
	return fromJSON(t, string(r.up.Last(t).Body))
}

// ask sends a request that is no stream and returns what went up for it.
func (r *rig) ask(t *testing.T, path, body string) any {
	t.Helper()
	post(t, r.Client, path, body)
	return r.sent(t)
}

// Each deployment is treated as its own options say, and one without any as
// most model servers need it.
func TestOptionsOfRequests(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "plain", upstream.Echo)
	r.serveAs(t, "thinks", upstream.Echo, map[string]any{"reasoning": true})
	r.serveAs(t, "keeps", upstream.Echo, map[string]any{"inline_system": "keep"})
	r.serveAs(t, "reads", upstream.Echo, map[string]any{"file_parts": true})

	effort := func(model string) any {
		return at(r.ask(t, messagesPath, messagesRequest(model, `,"thinking":{"type":"enabled","budget_tokens":5000}`)), "reasoning_effort")
	}
	if got := effort("thinks"); got != "medium" {
		t.Errorf("reasoning: the effort that went up is %v", got)
	}
	if got := effort("plain"); got != nil {
		t.Errorf("without reasoning: the effort %v went up", got)
	}

	roles := func(model, path, body string) (list []string) {
		messages, _ := at(r.ask(t, path, body), "messages").([]any)
		for _, m := range messages {
			list = append(list, text(m, "role"))
		}
		return list
	}
	const talk = `[{"role":"user","content":"u"},{"role":"system","content":"x"},{"role":"assistant","content":"a"},{"role":"system","content":"y"},{"role":"user","content":"u"}]`
	for path, body := range map[string]string{
		messagesPath: `{"model":"MODEL","max_tokens":9,"messages":` + talk + `}`, responsesPath: `{"model":"MODEL","input":` + talk + `}`,
	} {
		if got := roles("keeps", path, strings.Replace(body, "MODEL", "keeps", 1)); !slices.Equal(got, []string{"user", "system", "assistant", "system", "user"}) {
			t.Errorf("inline_system keep: %s sent %v up", path, got)
		}
		if got := roles("plain", path, strings.Replace(body, "MODEL", "plain", 1)); !slices.Equal(got, []string{"user", "assistant", "user"}) {
			t.Errorf("without inline_system: %s sent %v up", path, got)
		}
	}

	for path, body := range map[string]string{
		messagesPath:  `{"model":"MODEL","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","title":"a.pdf","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}}]}]}`,
		responsesPath: `{"model":"MODEL","input":[{"role":"user","content":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="}]}]}`,
	} {
		part := at(r.ask(t, path, strings.Replace(body, "MODEL", "reads", 1)), "messages", 0, "content", 0)
		if text(part, "type") != "file" || text(part, "file", "filename") != "a.pdf" || text(part, "file", "file_data") != "data:application/pdf;base64,JVBERi0=" {
			t.Errorf("file_parts: %s sent %v up", path, part)
		}
		if a := r.Do(t, http.MethodPost, path, strings.Replace(body, "MODEL", "plain", 1)); a.Status != 400 || !strings.Contains(a.Body, "application/pdf") {
			t.Errorf("without file_parts: %s got %d, %s", path, a.Status, a.Body)
		}
	}
}

// What the model server answers is read as its deployment's options say.
func TestOptionsOfAnswers(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	tagged := func(name string) upstream.Handler {
		m := up(name)
		return upstream.Events(upstream.Role(m), upstream.Delta(m, "<thi"), upstream.Delta(m, "nk>\nhm</think>"), upstream.Delta(m, "\n\nHi"), upstream.Finish(m, "stop"), upstream.Done)
	}
	r.serve(t, "plain", tagged("plain"))
	r.serveAs(t, "tagged", tagged("tagged"), map[string]any{"think_tags": true})
	for model, want := range map[string]turn{"tagged": {Thinking: "hm", Text: "Hi"}, "plain": {Text: "<think>\nhm</think>\n\nHi"}} {
		got := askMessages(t, r.Client, messagesRequest(model, `,"stream":true`))
		if got.Thinking != want.Thinking || got.Text != want.Text {
			t.Errorf("%s, messages: %q, %q", model, got.Thinking, got.Text)
		}
		if got, _ = askResponses(t, r.Client, responsesRequest(model, `,"stream":true`)); got.Thinking != want.Thinking || got.Text != want.Text {
			t.Errorf("%s, responses: %q, %q", model, got.Thinking, got.Text)
		}
	}
	r.serveAs(t, "whole", upstream.JSON(upstream.Completion(up("whole"), "<think>hm</think>Hi")), map[string]any{"think_tags": true})
	if got := askMessages(t, r.Client, messagesRequest("whole", "")); got.Thinking != "hm" || got.Text != "Hi" {
		t.Errorf("whole: %+v", got)
	}

	r.serveAs(t, "told", upstream.Events(upstream.Thought(up("told"), "hm"), upstream.Delta(up("told"), "Hi"), upstream.Finish(up("told"), "stop"), upstream.Done), map[string]any{"reasoning_as": "content"})
	_, response := askResponses(t, r.Client, responsesRequest("told", `,"stream":true`))
	if part := at(response, "output", 0, "content", 0); text(part, "type") != "reasoning_text" || text(part, "text") != "hm" {
		t.Errorf("reasoning_as content: %v", response)
	}

	calls := func(name, fingerprint string) upstream.Handler {
		event := func(id string) string {
			return strings.Replace(upstream.ToolDelta(up(name), `{"index":0,"id":"`+id+`","function":{"name":"f","arguments":"{}"}}`), `"b1"`, `"`+fingerprint+`"`, 1)
		}
		return upstream.Events(event("a"), event("b"), upstream.Finish(up(name), "tool_calls"), upstream.Done)
	}
	for _, c := range []struct {
		name, option, fingerprint string
		repaired                  bool
	}{{"auto", "auto", "fp_ollama", true}, {"auto-other", "auto", "b1", false}, {"on", "on", "b1", true}, {"off", "off", "fp_ollama", false}} {
		r.serveAs(t, c.name, calls(c.name, c.fingerprint), map[string]any{"repair_tool_index": c.option})
		a := r.Post(t, harness.Chat(c.name, `,"stream":true`))
		if got := strings.Contains(a.Body, `"index":1,"id":"b"`); a.Status != 200 || got != c.repaired {
			t.Errorf("repair_tool_index %s with %s: status %d, %s", c.option, c.fingerprint, a.Status, a.Body)
		}
	}
}

// The options are set by command too, in force on the next request, and kept
// over a restart; setting the deployment anew without them unsets them.
func TestOptionsAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	effort := func() any {
		return at(r.ask(t, messagesPath, messagesRequest("m", `,"output_config":{"effort":"max"}`)), "reasoning_effort")
	}
	var set map[string]any
	r.Command(t, &set, "deployment", "set", "m", "--connector", "box", "--model", up("m"), "--option", "reasoning=true", "--option", "reasoning_as=content")
	if toJSON(t, set["options"]) != `{"reasoning":true,"reasoning_as":"content"}` || effort() != "high" {
		t.Errorf("set %v, the effort that went up is %v", set, effort())
	}
	if _, stderr, code := r.Run(t, "deployment", "set", "m", "--connector", "box", "--option", "resoning=true"); code == 0 || !strings.Contains(stderr, "unknown option") {
		t.Errorf("a mistyped option: exit code %d, %s", code, stderr)
	}
	r.Gateway.Process.Kill()
	r.Restart(t)
	r.con.WaitState(t, "online", 30*time.Second)
	if got := effort(); got != "high" {
		t.Errorf("after a restart the effort that went up is %v", got)
	}
	r.Command(t, nil, "deployment", "set", "m", "--connector", "box", "--model", up("m"))
	if got := effort(); got != nil {
		t.Errorf("set anew, the effort that went up is %v", got)
	}
}

// What clients carry for the gateway can be read by nobody else, is of use to
// the account alone, and outlives the gateway's process.
func TestSealedThinking(t *testing.T) {
	t.Parallel()
	const thought = "the neighbour's secret"
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Events(upstream.Thought(up("m"), thought), upstream.Delta(up("m"), "Hi"), upstream.Finish(up("m"), "stop"), upstream.Done))
	message := r.Do(t, http.MethodPost, messagesPath, messagesRequest("m", `,"stream":true,"thinking":{"type":"adaptive","display":"omitted"}`))
	var signature string
	for _, e := range readEvents(t, message.Body) {
		signature += text(e.Data, "delta", "signature")
	}
	_, response := askResponses(t, r.Client, responsesRequest("m", `,"stream":true,"store":false,"include":["reasoning.encrypted_content"]`))
	content := text(response, "output", 0, "encrypted_content")
	if !strings.HasPrefix(signature, "gw2.") || !strings.HasPrefix(content, "gwr1.") {
		t.Fatalf("signature %q, encrypted content %q", signature, content)
	}
	r.Gateway.Process.Kill()
	r.Restart(t)
	r.con.WaitState(t, "online", 30*time.Second)
	r.serve(t, "m", upstream.Echo)

	reasoning := func(signature, content string) [2]string {
		block := `[{"type":"thinking","thinking":"","signature":` + harness.Quote(signature) + `},{"type":"text","text":"Hi"}]`
		first := r.ask(t, messagesPath, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"u"},{"role":"assistant","content":`+block+`},{"role":"user","content":"v"}]}`)
		item := `{"type":"reasoning","summary":[],"encrypted_content":` + harness.Quote(content) + `}`
		second := r.ask(t, responsesPath, `{"model":"m","input":[{"role":"user","content":"u"},`+item+`,{"role":"assistant","content":"Hi"},{"role":"user","content":"v"}]}`)
		return [2]string{text(first, "messages", 1, "reasoning_content"), text(second, "messages", 1, "reasoning_content")}
	}
	if got := reasoning(signature, content); got != [2]string{thought, thought} {
		t.Errorf("the thinking that came back is %q", got)
	}
	forged := func(s string) string { return s[:len(s)-9] + "AAAAAAAAA" }
	if got := reasoning(forged(signature), forged(content)); got != [2]string{} {
		t.Errorf("forged seals were opened: %q", got)
	}
	if got := reasoning("gw2."+content[5:], "gwr1."+signature[4:]); got != [2]string{} {
		t.Errorf("a seal served another use: %q", got)
	}
}

// Probabilities of the text reach clients of responses.
func TestLogprobs(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	const probs = `{"content":[{"token":"Hi","logprob":-0.5,"bytes":[72,105],"top_logprobs":[{"token":"Hi","logprob":-0.5,"bytes":[72,105]}]}]}`
	event := strings.Replace(upstream.Delta(up("m"), "Hi"), `"index":0`, `"logprobs":`+probs+`,"index":0`, 1)
	r.serve(t, "m", upstream.Events(event, upstream.Finish(up("m"), "stop"), upstream.Done))
	r.serve(t, "whole", upstream.JSON(strings.Replace(upstream.Completion(up("whole"), "Hi"), `"index":0`, `"logprobs":`+probs+`,"index":0`, 1)))
	for model, stream := range map[string]string{"m": `,"stream":true`, "whole": ""} {
		_, response := askResponses(t, r.Client, responsesRequest(model, stream+`,"include":["message.output_text.logprobs"],"top_logprobs":1`))
		if body := r.sent(t); at(body, "logprobs") != true || number(body, "top_logprobs") != 1 {
			t.Errorf("%s: %v went up", model, body)
		}
		token := at(response, "output", 0, "content", 0, "logprobs", 0)
		if text(token, "token") != "Hi" || at(token, "logprob") != -0.5 || text(token, "top_logprobs", 0, "token") != "Hi" || number(token, "bytes", 1) != 105 {
			t.Errorf("%s: %v", model, response)
		}
	}
}

// A client has its conversation compacted, and goes on from that.
func TestCompaction(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	m := up("m")
	r.serve(t, "m", upstream.Events(upstream.Thought(m, "hm"), upstream.Delta(m, "The user wants"), upstream.Delta(m, " tea."), upstream.Finish(m, "stop"), upstream.Usage(m, 10, 5), upstream.Done))
	a := r.Do(t, http.MethodPost, responsesPath, `{"model":"m","stream":true,"store":false,"tools":[{"type":"function","name":"f"}],"input":[{"role":"user","content":"Tea, please."},{"type":"compaction_trigger"}]}`)
	list := readEvents(t, a.Body)
	if got := names(list); !slices.Equal(got, []string{"response.created", "response.in_progress", "response.output_item.added", "response.output_item.done", "response.completed", "[DONE]"}) {
		t.Fatalf("status %d, events %v", a.Status, got)
	}
	item := list[3].Data["item"]
	if text(item, "type") != "compaction" || strings.Contains(a.Body, "tea") || toJSON(t, at(list[4].Data, "response", "output")) != "["+toJSON(t, item)+"]" {
		t.Errorf("the response is %s", a.Body)
	}
	if body := r.sent(t); at(body, "tools") != nil || !strings.Contains(text(body, "messages", 1, "content"), "Summarize") {
		t.Errorf("%v went up", body)
	}
	r.serve(t, "m", upstream.Echo)
	body := r.ask(t, responsesPath, `{"model":"m","input":[`+toJSON(t, item)+`,{"role":"user","content":"Go on."}]}`)
	if got := text(body, "messages", 0, "content"); !strings.HasSuffix(got, "The user wants tea.") || text(body, "messages", 1, "content") != "Go on." {
		t.Errorf("%v went up", body)
	}
}
