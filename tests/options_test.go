package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// sent is the body of the request that came to the upstream last.
func (r *rig) sent(t *testing.T) any {
	t.Helper()
	return fromJSON(t, string(r.up.Last(t).Body))
}

// ask sends a request without streaming and returns the body that the upstream received.
func (r *rig) ask(t *testing.T, path, body string) any {
	t.Helper()
	post(t, r.Client, path, body)
	return r.sent(t)
}

// The options can be set by command. They apply to the next request, and survive a restart and a change of the
// route, until they are reset.
func TestOptionsAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	effort := func() any {
		return at(r.ask(t, messagesPath, messagesRequest("m", `,"output_config":{"effort":"max"}`)), "reasoning_effort")
	}
	var set map[string]any
	r.Command(t, &set, "deployment", "set", "m", "--connector", "box", "--model", up("m"), "--option", "reasoning=true",
		"--option", "remote_media=allow")
	if toJSON(t, set["options"]) != `{"reasoning":true,"remote_media":"allow"}` || effort() != "high" {
		t.Errorf("set %v, the effort that went up is %v", set, effort())
	}
	if _, stderr, code := r.Run(t, "deployment", "set", "m", "--connector", "box", "--option",
		"resoning=true"); code == 0 || !strings.Contains(stderr, "unknown option") {
		t.Errorf("a mistyped option: exit code %d, %s", code, stderr)
	}
	r.Gateway.Process.Kill()
	r.Restart(t)
	r.con.WaitState(t, "online", limit)
	if got := effort(); got != "high" {
		t.Errorf("after a restart the effort that went up is %v", got)
	}
	r.Command(t, nil, "deployment", "set", "m", "--model", up("m"))
	if got := effort(); got != "high" {
		t.Errorf("with another route the effort that went up is %v", got)
	}
	r.Command(t, nil, "deployment", "set", "m", "--reset", "reasoning")
	if got := effort(); got != nil {
		t.Errorf("after a reset the effort that went up is %v", got)
	}
}

// Data that clients carry for the gateway cannot be read by others, is valid for one account only, and
// survives the gateway's process.
func TestSealedThinking(t *testing.T) {
	t.Parallel()
	const thought = "the neighbour's secret"
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Events(upstream.Thought(up("m"), thought), upstream.Delta(up("m"), "Hi"),
		upstream.Finish(up("m"), "stop"), upstream.Done))
	message := r.Do(t, http.MethodPost, messagesPath,
		messagesRequest("m", `,"stream":true,"thinking":{"type":"adaptive","display":"omitted"}`))
	var signature string
	for _, e := range readEvents(t, message.Body) {
		signature += text(e.Data, "delta", "signature")
	}
	_, response := askResponses(t, r.Client,
		responsesRequest("m", `,"stream":true,"store":false,"include":["reasoning.encrypted_content"]`))
	content := text(response, "output", 0, "encrypted_content")
	if !strings.HasPrefix(signature, "gw2.") || !strings.HasPrefix(content, "gwr1.") {
		t.Fatalf("signature %q, encrypted content %q", signature, content)
	}
	r.Gateway.Process.Kill()
	r.Restart(t)
	r.con.WaitState(t, "online", limit)
	r.serve(t, "m", upstream.Echo)

	reasoning := func(signature, content string) [2]string {
		block := `[{"type":"thinking","thinking":"","signature":` + harness.Quote(signature) +
			`},{"type":"text","text":"Hi"}]`
		first := r.ask(t, messagesPath,
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"u"},{"role":"assistant","content":`+block+
				`},{"role":"user","content":"v"}]}`)
		item := `{"type":"reasoning","summary":[],"encrypted_content":` + harness.Quote(content) + `}`
		second := r.ask(t, responsesPath,
			`{"model":"m","input":[{"role":"user","content":"u"},`+item+
				`,{"role":"assistant","content":"Hi"},{"role":"user","content":"v"}]}`)
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
