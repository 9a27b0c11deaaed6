package dialect

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect/kept"
)

// phases matches what Codex repeats of another service's answers.
var phases = regexp.MustCompile(`, input\[\d+\]\.phase \(\w+\)`)

// TestAgentRequests decodes bodies like those of Claude Code and Codex, in the turns of one
// conversation, and compares the upstream's bodies.
func TestAgentRequests(t *testing.T) {
	for _, c := range []struct {
		name    string
		op      Operation
		turns   int
		dropped string // no more than what a person would miss
	}{
		{"claude_code", messagesOp, 3, "tools.29 (web_search_20250305)"},
		{"codex", responsesOp, 3, "tools[5] (web_search), tools[6] (image_generation), tools[7] (tool_search)"},
	} {
		before := ""
		for turn := range c.turns {
			name := c.name + "_" + string(rune('1'+turn))
			call := mustDecode(t, c.op, agentRequest(t, name), testEnv())
			if got := phases.ReplaceAllString(call.Dropped(), ""); got != c.dropped {
				t.Errorf("%s dropped %q, want %q", name, got, c.dropped)
			}
			up := upstreamBody(t, call)
			checkChatRequest(t, []byte(up), true)
			if !strings.HasPrefix(up, strings.TrimSuffix(before, "]}")) {
				t.Errorf("%s does not extend the turn before", name)
			}
			before = up
			for _, secret := range []string{
				"billing", "cch=", "account_uuid", "session_id", "cache_control", "encrypted",
				"installation",
			} {
				if strings.Contains(up, secret) {
					t.Errorf("%s: %q goes up", name, secret)
				}
			}
			checkUpstream(t, name, up)
		}
	}
}

// Clients count many small bodies at once. The upstream's body has only the message.
func TestAgentCounts(t *testing.T) {
	c := mustDecode(t, countOp, agentRequest(t, "claude_code_count"), testEnv())
	if c.Dropped() != "" {
		t.Errorf("dropped %q", c.Dropped())
	}
	if up := upstreamBody(t, c); up != `{"model":"up","messages":[{"role":"user","content":"foo"}]}` {
		t.Error(up)
	}
	if messages, tools := promptText(c.Prompt()); messages != `[{"role":"user","content":"foo"}]` || tools != "" {
		t.Errorf("%s, tools %s", messages, tools)
	}
}

// agentRequest returns the request body of a file.
func agentRequest(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "requests", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// checkUpstream compares an upstream's body, indented, with the golden file.
func checkUpstream(t *testing.T, name, up string) {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(up), "", " "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	path := filepath.Join("testdata", "requests", name+".golden")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, b.Bytes()) {
		t.Errorf("not as in %s (-update writes it anew):\n%s", path, b.Bytes())
	}
}

// allModels is the scope of a key for all models.
type allModels struct{}

// Allows implements kept.Scope.
func (allModels) Allows(string) bool { return true }

// viewOf returns the view of a key for all models.
func viewOf(k *kept.Store, account, key string) kept.View {
	return k.View(kept.Owner{Account: account, Key: key}, account, allModels{})
}
