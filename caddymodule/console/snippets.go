package console

import (
	"cmp"
	_ "embed" // for the code of snippets
	"fmt"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/connector/text"
)

// keyPlaceholder stands for the key in snippets: keys are shown only once.
const keyPlaceholder = "sk-svc-YOUR-KEY"

// snippet is a tab of code to copy.
type snippet struct {
	ID    string // unique in the list, for ids of elements
	Title string
	Parts []snippetPart
	Agent bool // needs a model that calls tools
}

// snippetPart is one thing to copy.
type snippetPart struct {
	ID   string
	Hint string // where to put it; may be empty
	Code string
}

// values are the values of snippets. Each is quoted for the language of the snippet,
// so that it cannot be anything but a string.
type values struct {
	Base       string // of the gateway, without /v1 and without a slash at its end
	Model, Key string // of clients
	Token      string
	Window     int  // context window in tokens; 0: not known
	Judged     bool // the gateway checks tool calls
}

// unknownWindow is the context window in snippets if it is not known.
const unknownWindow = 65536

// Output returns the longest answer: agents compact a conversation that leaves less of the context window.
func (v values) Output() int { return max(1024, min(v.Window/4, 8192)) }

// with returns a hint, with another one if the context window is not known.
func (v values) with(hint string) string {
	if v.Window > 0 {
		return hint
	}
	return fmt.Sprintf("The context window is not known: press Measure on the model's page, and load it again. "+
		"Until then, %d is a guess. %s", unknownWindow, hint)
}

//go:embed snippets.tmpl
var snippetText string

var snippetTemplates = template.Must(template.New("").Funcs(template.FuncMap{
	"quote": quote, "shell": text.ShellQuote, "word": text.ShellWord, "loopback": downloads.OnlyHere,
}).Parse(snippetText))

// code returns the code of a snippet.
func code(name string, v values) string {
	v.Key, v.Window = cmp.Or(v.Key, keyPlaceholder), cmp.Or(v.Window, unknownWindow)
	var b strings.Builder
	if err := snippetTemplates.ExecuteTemplate(&b, name, v); err != nil {
		panic(err) // not possible: all values are strings
	}
	return b.String()
}

// part returns a snippetPart with the code of a snippet.
func part(name, hint string, v values) snippetPart {
	return snippetPart{ID: name, Hint: hint, Code: code(name, v)}
}

// snippetsOf returns the configuration of clients for a deployment.
func snippetsOf(d manage.Deployment, v values) []snippet {
	v.Model, v.Window, v.Judged = d.Name, d.ContextWindow, d.Options.Safeguards != ""
	if d.Embeds() {
		return []snippet{
			{ID: "curl", Title: "curl", Parts: []snippetPart{part("embed-curl", "In a shell of Linux or macOS:", v)}},
			{ID: "sdk", Title: "OpenAI SDK", Parts: []snippetPart{part("embed-sdk", sdkHint, v)}},
		}
	}
	return snippets(v)
}

const sdkHint = "Python, after pip install openai. Other languages have the same two settings."

// snippets returns the configuration of clients for a chat model.
func snippets(v values) []snippet {
	const shell = "In the shell where you start it:"
	webUI := "Starts a new container. In an existing installation: Admin Panel, Settings, Connections, " +
		"add an OpenAI connection with the URL and key below. Then pick " + v.Model + " in the list of models."
	return []snippet{
		{ID: "curl", Title: "curl", Parts: []snippetPart{part("curl", "In a shell of Linux or macOS:", v)}},
		{ID: "sdk", Title: "OpenAI SDK", Parts: []snippetPart{part("sdk", sdkHint, v)}},
		{ID: "claude", Title: "Claude Code", Parts: []snippetPart{part("claude", v.with(shell), v)}, Agent: true},
		{ID: "codex", Title: "Codex", Agent: true, Parts: []snippetPart{
			part("codex-file", v.with("At the beginning of ~/.codex/config.toml:"), v), part("codex-shell", shell, v),
		}},
		{ID: "opencode", Title: "opencode", Agent: true, Parts: []snippetPart{
			part("opencode-file", v.with("In opencode.json of the project, or ~/.config/opencode/opencode.json:"), v),
			part("opencode-shell", shell, v),
		}},
		{ID: "webui", Title: "Open WebUI", Parts: []snippetPart{part("webui", webUI, v)}},
	}
}

// pairLines returns the commands that connect another machine.
func pairLines(c downloads.Commands) []snippet {
	var lines []snippet
	add := func(id, title, hint, command string) {
		if command != "" {
			lines = append(lines, snippet{ID: id, Title: title, Parts: []snippetPart{{id, hint, command}}})
		}
	}
	add("unix", "Linux, macOS", "In a shell. As root, it is installed for the whole machine:", c.Install)
	add("windows", "Windows", "In PowerShell:", c.InstallWindows)
	add("installed", "Installed already", "Where the connector is installed already:", c.Pair)
	return lines
}

// quote returns s as a string literal of JSON, TOML and Python. Its escapes are
// \", \\ and \uXXXX.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"', r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r <= 0xffff && (r == utf8.RuneError || !unicode.IsPrint(r)):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
