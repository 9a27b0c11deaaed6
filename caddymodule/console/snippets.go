package console

import (
	"cmp"
	_ "embed" // for the code of snippets
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf8"
)

// keyPlaceholder stands where a snippet wants a key that the page does not
// have: keys are shown once only.
const keyPlaceholder = "sk-svc-YOUR-KEY"

// snippet is a piece of code to copy, as a part of a list.
type snippet struct {
	ID    string // unique in the list, for ids of elements
	Title string
	Parts []snippetPart
}

// snippetPart is one thing to copy.
type snippetPart struct {
	ID   string
	Hint string // where it goes; may be empty
	Code string
}

// values are what snippets are filled with. Each goes through the quoting of the
// language that it stands in, so that none can be more than a string there.
type values struct {
	Base       string // of the gateway, without /v1 and without a slash at its end
	Model, Key string // of clients
	Code, Pin  string // of pairing
	Token      string
}

//go:embed snippets.tmpl
var snippetText string

var snippetTemplates = template.Must(template.New("").Funcs(template.FuncMap{
	"quote": quote, "shell": shellQuote, "word": shellWord, "power": powerShellQuote, "loopback": loopback,
}).Parse(snippetText))

// code is the code of a snippet.
func code(name string, v values) string {
	v.Key = cmp.Or(v.Key, keyPlaceholder)
	var b strings.Builder
	if err := snippetTemplates.ExecuteTemplate(&b, name, v); err != nil {
		panic(err) // strings fill in all of them
	}
	return b.String()
}

// part is a snippetPart of this name.
func part(name, hint string, v values) snippetPart {
	return snippetPart{ID: name, Hint: hint, Code: code(name, v)}
}

// snippets are what clients need to use a deployment.
func snippets(v values) []snippet {
	const shell = "In the shell that you start it from:"
	webUI := "A new one in a container. In one that runs already: Admin Panel, Settings, Connections, add an OpenAI connection with the URL and key below. Then pick " + v.Model + " in the list of models."
	return []snippet{
		{"curl", "curl", []snippetPart{part("curl", "In a shell of Linux or macOS:", v)}},
		{"sdk", "OpenAI SDK", []snippetPart{part("sdk", "Python, after pip install openai. The other languages take the same two settings.", v)}},
		{"claude", "Claude Code", []snippetPart{part("claude", shell, v)}},
		{"codex", "Codex", []snippetPart{part("codex-file", "At the beginning of ~/.codex/config.toml:", v), part("codex-shell", shell, v)}},
		{"webui", "Open WebUI", []snippetPart{part("webui", webUI, v)}},
	}
}

// pairLines are the commands that pair a connector, for each way to have one.
// Without a certificate the connector cannot verify the gateway, so that it has to
// know the gateway's key beforehand.
func pairLines(v values) []snippet {
	if !strings.HasPrefix(v.Base, "http://") || loopback(v.Base) {
		v.Pin = ""
	}
	return []snippet{
		{"unix", "Linux, macOS", []snippetPart{part("unix", "With Go installed, in a shell:", v)}},
		{"windows", "Windows", []snippetPart{part("windows", "With Go installed, in PowerShell:", v)}},
		{"installed", "Installed already", []snippetPart{part("installed", "Where the connector is installed already:", v)}},
	}
}

// loopback reports whether only this machine reaches the gateway at base.
func loopback(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return isLocalhost(u.Host) || err == nil && addr.IsLoopback()
}

// quote writes s as a string literal that JSON, TOML and Python read alike: it
// uses no escape but \", \\ and \uXXXX.
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

// shellQuote writes s as one word of a POSIX shell that stands for itself.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]+$`)

// shellWord leaves out the quotes where they are not needed, for the eye.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return shellQuote(s)
}

var powerShellQuotes = regexp.MustCompile("['‘’‚‛]")

// powerShellQuote writes s as a string of PowerShell that stands for itself.
// PowerShell takes typographic quotes for quotes, too.
func powerShellQuote(s string) string {
	return "'" + powerShellQuotes.ReplaceAllString(s, "$0$0") + "'"
}
