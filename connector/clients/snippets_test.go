package clients

import (
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postern-dev/postern/connector/window"
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

// JSON decodes a literal of quote to the original string. Strings of TOML, YAML, Python, JavaScript and Go have the
// same escapes.
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
				if !strings.ContainsRune(`"\unrtbf`, rune(inner[i])) {
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
		args := strings.Split(runShell(t, code("curl", Values{Base: base, Model: model, Key: key}), "curl"), "\n")
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
		claude := runShell(t, code("claude", Values{Base: base, Model: model, Key: key}), "claude")
		for _, want := range []string{
			"--model=" + model + "\n", "ANTHROPIC_BASE_URL=" + base + "\n",
			"ANTHROPIC_AUTH_TOKEN=" + key + "\n", "ANTHROPIC_API_KEY=\n",
			"ANTHROPIC_DEFAULT_HAIKU_MODEL=" + model + "\n", "ANTHROPIC_DEFAULT_SONNET_MODEL=" + model + "\n",
			"ANTHROPIC_DEFAULT_OPUS_MODEL=" + model + "\n", "ANTHROPIC_DEFAULT_FABLE_MODEL=" + model + "\n",
			"CLAUDE_CODE_AUTO_MODE_SERVER=0\n", "CLAUDE_CODE_AUTO_MODE_MODEL=" + model + "\n", "CLAUDE_CODE_MAX_CONTEXT_TOKENS=",
		} {
			if !strings.Contains(claude, want) {
				t.Errorf("claude and its environment: %q, want %q", claude, want)
			}
		}
		if !strings.Contains(code("openai-python", Values{Base: base, Model: model, Key: key}), "model="+quote(model)+",") {
			t.Errorf("the SDK does not use %q", model)
		}
	}
}

// The Python snippet has the same lines with any name of the deployment.
func TestSDKSnippetLines(t *testing.T) {
	want := strings.Count(code("openai-python", Values{Base: "https://gw", Model: "m"}), "\n")
	for _, model := range hostile {
		if got := strings.Count(code("openai-python", Values{Base: "https://gw", Model: model}), "\n"); got != want {
			t.Errorf("%q makes %d lines of %d", model, got, want)
		}
	}
}

// A file is what its members say, with any name of the deployment.
func TestFiles(t *testing.T) {
	for _, model := range hostile {
		model = strings.ToValidUTF8(model, "\ufffd")
		v := Values{Base: "https://gw.example.com:8443", Model: model, Key: "sk-svc-abc"}
		for window, want := range map[int][2]int{
			0: {unknownWindow, 8192}, 2048: {2048, 1024}, 8192: {8192, 2048}, 262144: {262144, 8192},
		} {
			if v.Window = window; v.Tokens() != want[0] || v.Output() != want[1] {
				t.Errorf("window %d: %d, %d", window, v.Tokens(), v.Output())
			}
			for _, c := range All() {
				if c.File != nil {
					checkFile(t, c.ID, c.File, v)
				}
			}
		}
	}
}

// A window that is too large or negative is in no file: the format's numbers may not have it.
func TestHostileWindows(t *testing.T) {
	for tokens, want := range map[int]int{
		-1: unknownWindow, math.MinInt: unknownWindow, window.Max + 1: window.Max, 1<<53 + 1: window.Max,
		math.MaxInt: window.Max,
	} {
		v := Values{Base: "https://gw.example.com", Model: "m", Window: tokens}
		if v.Tokens() != want || v.Prompt() < 1 {
			t.Errorf("window %d: %d, prompt %d", tokens, v.Tokens(), v.Prompt())
		}
		for _, c := range All() {
			if c.File != nil && c.File.Text(v) == "" {
				t.Errorf("window %d: %s has no file", tokens, c.ID)
			}
		}
	}
	const number = 1<<53 + 1 // JSON reads another one back
	if text := (&File{Format: JSON, Members: func(Values) []Member { return []Member{member(number, "a")} }}).
		Text(Values{}); text != "" {
		t.Errorf("the format cannot have %d: %s", number, text)
	}
}

// checkFile reads a file again, and compares it with the members.
func checkFile(t *testing.T, id string, f *File, v Values) {
	t.Helper()
	text := f.Text(v)
	read, err := f.Format.parse(text)
	if err != nil {
		t.Fatalf("%s: %v: %s", id, err, text)
	}
	for _, m := range f.Members(v) {
		got := valueAt(read, m.Path)
		if (got == nil) != (m.Value == nil) || got != nil && fmt.Sprint(got) != fmt.Sprint(m.Value) {
			t.Errorf("%s: %q is %v, want %v: %s", id, m.Path, got, m.Value, text)
		}
	}
}

// The file of a client names the authority of a private gateway, or the client has a variable for it.
func TestPrivateAuthority(t *testing.T) {
	v := Values{Base: "https://gw.lan", Model: "m"}
	for _, c := range All() {
		if c.File == nil {
			continue
		}
		for v.CA = range map[string]bool{"": true, "/home/me/root.crt": true} {
			if has := strings.Contains(c.File.Text(v), "/home/me/root.crt"); has != (v.CA != "" && c.File.CAEnv == "") {
				t.Errorf("%s with the authority %q: %s", c.ID, v.CA, c.File.Text(v))
			}
		}
	}
}

// With a private authority, each snippet names root.crt; otherwise, none does.
func TestRootOfSnippets(t *testing.T) {
	for _, root := range []string{"", "root.crt"} {
		for _, c := range All() {
			for _, s := range c.Snippets(Values{Base: "https://gw.lan", Model: "m", Root: root}) {
				if has := strings.Contains(s.Hint+s.Code, "root.crt"); has != (root != "") {
					t.Errorf("%s with the root %q: %s\n%s", s.Name, root, s.Hint, s.Code)
				}
			}
		}
	}
	webui := code("webui", Values{Base: "https://gw.lan", Model: "m", Root: "root.crt"})
	if !strings.Contains(webui, " -v \"$PWD\"/root.crt:/root.crt:ro -e SSL_CERT_FILE=/root.crt \\\n") {
		t.Error(webui)
	}
	if text := Find("claude").Snippets(Values{Base: "https://gw.lan", Root: "root.crt"})[1].Code; !strings.Contains(text,
		`"NODE_EXTRA_CA_CERTS": "/path/to/root.crt"`) {
		t.Error(text)
	}
}

// Names of providers have the host: a person may have two gateways.
func TestProvider(t *testing.T) {
	for base, want := range map[string]string{
		"https://gw.example.com": "postern-gw-example-com", "http://localhost:8080": "postern-localhost-8080",
		"https://[2001:DB8::1]:8443": "postern-2001-db8-1-8443", "": "postern-",
	} {
		if got := (Values{Base: base}).Provider(); got != want {
			t.Errorf("%s is called %s, want %s", base, got, want)
		}
	}
	for base, want := range map[string]string{
		"http://localhost:8080": "--network=host", "http://[::1]:8080": "--network=host",
		"http://127.0.0.1:80": "--network=host", "http://gw.localhost": "--network=host",
		"https://gw.example.com": "-p 3000:8080", "https://localhost.example.com": "-p 3000:8080",
	} {
		if text := code("webui", Values{Base: base}); !strings.Contains(text, want) {
			t.Errorf("%s: the container has no %s: %s", base, want, text)
		}
	}
}

// An id finds its client, and a page can have all parts.
func TestTable(t *testing.T) {
	names := map[string]bool{}
	for _, c := range All() {
		if found := Find(c.ID); found.Title != c.Title || names[c.ID] {
			t.Errorf("%s finds %s", c.ID, found.Title)
		}
		names[c.ID] = true
		for kind, word := range map[string]string{
			"": "", "embeddings": "mbed", "rerank": "rerank", "transcription": "ranscriptions",
			"speech": "peech", "image": "mages",
		} {
			all := c.Snippets(Values{Base: "https://gw", Model: "qwen3", Kind: kind})
			if kind != "" && len(all) > 0 != (c.AllKinds && (kind != "rerank" || c.ID == "curl")) {
				t.Errorf("%s, %s: %d snippets", c.ID, kind, len(all))
			}
			for _, p := range all {
				if !strings.Contains(p.Code, KeyPlaceholder) || !strings.Contains(p.Code, word) ||
					kind != "" && strings.Contains(p.Code, "chat") {
					t.Errorf("%s, %s: %s", p.Name, kind, p.Code)
				}
			}
		}
	}
	if Find("nothing").ID != "" {
		t.Error("nothing is a client")
	}
}
