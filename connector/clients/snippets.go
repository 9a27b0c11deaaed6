package clients

import (
	"cmp"
	_ "embed" // for the code of snippets
	"fmt"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf8"

	"github.com/postern-dev/postern/connector/text"
)

// keyPlaceholder stands for the key in code: keys are shown only once.
const keyPlaceholder = "sk-svc-YOUR-KEY"

//go:embed snippets.tmpl
var snippetText string

var snippets = template.Must(template.New("").Funcs(template.FuncMap{
	"quote": quote, "shell": text.ShellQuote, "word": text.ShellWord, "power": text.PowerShellQuote,
	"claudeEnv": claudeEnv,
}).Parse(snippetText))

// code returns what a template prints.
func code(name string, v Values) string {
	var b strings.Builder
	if err := snippets.ExecuteTemplate(&b, name, v); err != nil {
		panic(err) // not possible: all values are strings and numbers
	}
	return b.String()
}

// Snippet is a part of a client with its code.
type Snippet struct{ Name, Hint, Code string }

// Snippets returns what to copy for a client. Each value is quoted for the language around it, so that it cannot be
// anything but a string.
func (c Client) Snippets(v Values) []Snippet {
	v.Key = cmp.Or(v.Key, keyPlaceholder)
	all := make([]Snippet, len(c.Parts))
	for i, p := range c.Parts {
		all[i] = Snippet{p.Name, p.Hint, ""}
		if p.File > 0 {
			all[i].Code = c.Files[p.File-1].Text(v)
		} else {
			all[i].Code = code(p.Name, v)
		}
	}
	return all
}

// Text returns a file with nothing but the members.
func (f File) Text(v Values) string {
	text, err := f.Format.Merge(nil, f.Members(v))
	if err != nil {
		panic(err) // not possible: all members can be set in an empty file
	}
	return string(text)
}

// quote returns s as a string literal of JSON, TOML, Python, JavaScript and Go. Its escapes are \", \\ and \uXXXX.
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
