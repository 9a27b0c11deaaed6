package console

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// hostile are strings with metacharacters. They are not valid deployment names, but
// snippets must not rely on that.
var hostile = []string{
	"qwen3", "org/model:7b@x+y-z_1.5", "-rf", "it's", `say "hi"`, "$(touch /tmp/x)", "`id`", "${HOME}", `back\slash`,
	`trailing\`,
	"two words", "two\nlines", "tab\there", "bell\a", "del\x7f", "nul-free\x01", "é ☃ 😀", "line\u2028separator",
	"bad\xffutf8", "'''", `"""`,
	"a;b", "a&b", "a|b", "a>b", "#comment", "~", "*", "!history", "%s%d", "</script>", "{{.}}", "",
}

// JSON decodes a literal of quote to the original string. Basic strings of TOML and
// strings of Python have the same escapes.
func TestQuote(t *testing.T) {
	for _, s := range hostile {
		literal := quote(s)
		var back string
		if err := json.Unmarshal([]byte(literal), &back); err != nil {
			t.Errorf("quote(%q) = %s: %v", s, literal, err)
		} else if back != strings.ToValidUTF8(s, "\ufffd") {
			t.Errorf("quote(%q) is read as %q", s, back)
		}
		inner := literal[1 : len(literal)-1]
		for i := 0; i < len(inner); i++ {
			if inner[i] < ' ' || inner[i] == 0x7f {
				t.Errorf("quote(%q) = %s holds the control character %#x, which TOML refuses", s, literal, inner[i])
			}
			if inner[i] == '\\' {
				i++
				if !strings.ContainsRune(`"\u`, rune(inner[i])) {
					t.Errorf("quote(%q) = %s has an escape that not all languages know", s, literal)
				}
			}
		}
		if !utf8.ValidString(literal) {
			t.Errorf("quote(%q) is not UTF-8", s)
		}
	}
}

// runShell runs a snippet in a shell whose programs only print their arguments and
// the named environment variables, one a line.
func runShell(t *testing.T, snippet string, programs ...string) string {
	t.Helper()
	var script strings.Builder
	for _, p := range programs {
		script.WriteString(p + `() { for a in "$@"; do printf '%s\n' "$a"; done; }` + "\n")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-eu")
	cmd.Stdin = strings.NewReader(script.String() + snippet + "\nenv | grep -E '^(ANTHROPIC|CLAUDE|POSTERN)' || true\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("sh: %v: %s\n%s", err, out, snippet)
	}
	return string(out)
}

// The snippets pass the right arguments to their programs, with any name of the
// deployment.
func TestSnippets(t *testing.T) {
	const base, key = "https://gw.example.com", "sk-svc-abc"
	for _, model := range hostile {
		if !utf8.ValidString(model) || strings.Contains(model, "\n") || model == "" {
			continue // the output is split into lines
		}
		args := strings.Split(runShell(t, code("curl", values{Base: base, Model: model, Key: key}), "curl"), "\n")
		if args[1] != base+"/v1/chat/completions" || args[3] != "Authorization: Bearer "+key {
			t.Errorf("curl gets %q", args)
		}
		var body struct {
			Model    string
			Stream   bool
			Messages []map[string]string
		}
		if err := json.Unmarshal([]byte(args[7]), &body); err != nil || body.Model != model || !body.Stream ||
			len(body.Messages) != 1 {
			t.Errorf("curl sends %s for %q: %v", args[7], model, err)
		}
		claude := runShell(t, code("claude", values{Base: base, Model: model, Key: key}), "claude")
		for _, want := range []string{
			"--model=" + model + "\n", "ANTHROPIC_BASE_URL=" + base + "\n",
			"ANTHROPIC_AUTH_TOKEN=" + key + "\n",
			"ANTHROPIC_DEFAULT_HAIKU_MODEL=" + model + "\n", "ANTHROPIC_DEFAULT_SONNET_MODEL=" + model + "\n",
			"ANTHROPIC_DEFAULT_OPUS_MODEL=" + model + "\n", "ANTHROPIC_DEFAULT_FABLE_MODEL=" + model + "\n",
			"CLAUDE_CODE_AUTO_MODE_SERVER=0\n", "CLAUDE_CODE_AUTO_MODE_MODEL=" + model + "\n", "CLAUDE_CODE_MAX_CONTEXT_TOKENS=",
		} {
			if !strings.Contains(claude, want) {
				t.Errorf("claude and its environment: %q, want %q", claude, want)
			}
		}
		if first, _, _ := strings.Cut(code("codex-file", values{Base: base, Model: model}), "\n"); first != "model = "+
			quote(model) {
			t.Errorf("config.toml begins with %s", first)
		}
		var opencode struct {
			Model    string
			Provider struct {
				Postern struct {
					Models map[string]struct{ Limit struct{ Context, Output int } }
				}
			}
		}
		file := code("opencode-file", values{Base: base, Model: model, Window: 8192})
		if err := json.Unmarshal([]byte(file), &opencode); err != nil || opencode.Model != "postern/"+model ||
			opencode.Provider.Postern.Models[model].Limit.Context != 8192 {
			t.Errorf("opencode.json is %s: %v", file, err)
		}
		if !strings.Contains(code("sdk", values{Base: base, Model: model, Key: key}), "model="+quote(model)+",") {
			t.Errorf("the SDK does not use %q", model)
		}
	}
}

// The Python snippet has the same lines with any name of the deployment.
func TestSDKSnippetLines(t *testing.T) {
	want := strings.Count(code("sdk", values{Base: "https://gw", Model: "m"}), "\n")
	for _, model := range hostile {
		if got := strings.Count(code("sdk", values{Base: "https://gw", Model: model}), "\n"); got != want {
			t.Errorf("%q makes %d lines of %d", model, got, want)
		}
	}
}

// The snippets of agents have the window, and how much of it an answer may take. Claude Code needs its variables even
// if the deployment has all of its names: it assumes windows for them.
func TestSnippetsOfAgents(t *testing.T) {
	for window, want := range map[int][2]int{
		0: {unknownWindow, 8192}, 2048: {2048, 1024}, 8192: {8192, 2048}, 262144: {262144, 8192},
	} {
		var d manage.Deployment
		d.Name, d.AlsoAs, d.ContextWindow = "qwen3", []string{"claude-*"}, window
		for _, s := range snippetsOf(d, values{Base: "https://gw.example.com"}) {
			for _, text := range map[string][]string{
				"claude": {
					"ANTHROPIC_DEFAULT_HAIKU_MODEL=qwen3\n", fmt.Sprintf("CLAUDE_CODE_MAX_CONTEXT_TOKENS=%d\n", want[0]),
					fmt.Sprintf("CLAUDE_CODE_MAX_OUTPUT_TOKENS=%d\n", want[1]),
				},
				"codex":    {fmt.Sprintf("model_context_window = %d\n", want[0])},
				"opencode": {fmt.Sprintf(`{"context": %d, "output": %d}`, want[0], want[1])},
			}[s.ID] {
				if !strings.Contains(s.Parts[0].Code, text) || strings.Contains(s.Parts[0].Hint, "Measure") != (window == 0) {
					t.Errorf("window %d: no %q in %q, %s", window, text, s.Parts[0].Hint, s.Parts[0].Code)
				}
			}
		}
	}
}

// Claude Code checks the calls of its auto mode itself, unless the deployment has a judge.
func TestSnippetsOfAutoMode(t *testing.T) {
	for judge, want := range map[string]bool{"": true, "self": false, "other": false} {
		var d manage.Deployment
		d.Name, d.Options.Safeguards = "qwen3", judge
		for _, s := range snippetsOf(d, values{Base: "https://gw.example.com"}) {
			code := s.Parts[0].Code
			const own = "AUTO_MODE_SERVER=0\nexport CLAUDE_CODE_AUTO_MODE_MODEL=qwen3\n"
			if s.ID == "claude" && (strings.Contains(code, own) != want || strings.Contains(code, "AUTO_MODE") != want ||
				strings.Contains(code, "\n\n") || !strings.Contains(code, "\nexport CLAUDE_CODE_MAX_CONTEXT_TOKENS=")) {
				t.Errorf("judge %q: %s", judge, code)
			}
		}
	}
}

func TestSnippetsOfAPage(t *testing.T) {
	all := snippets(values{Base: "http://localhost:8080", Model: "qwen3"})
	ids := map[string]bool{}
	for _, s := range all {
		for _, p := range s.Parts {
			if ids[p.ID] {
				t.Errorf("two parts have the id %s", p.ID)
			}
			ids[p.ID] = true
			if p.Code == "" {
				t.Errorf("%s has no code", p.ID)
			}
		}
	}
	if len(all) != 6 {
		t.Errorf("%d clients, want 6", len(all))
	}
	if code := all[0].Parts[0].Code; !strings.Contains(code, keyPlaceholder) {
		t.Errorf("a page without a key shows %s", code)
	}
	if code := all[5].Parts[0].Code; !strings.Contains(code, "--network=host") {
		t.Errorf("a container does not reach the gateway on loopback: %s", code)
	}
	if text := code("webui", values{Base: "https://gw.example.com"}); !strings.Contains(text, "-p 3000:8080") {
		t.Errorf("public gateway: %s", text)
	}
}
