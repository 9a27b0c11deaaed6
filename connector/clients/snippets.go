package clients

import (
	"cmp"
	_ "embed" // for the code of snippets
	"strings"
	"sync"
	"text/template"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postern-dev/postern/connector/text"
)

// KeyPlaceholder stands for the key in code: keys are shown only once.
const KeyPlaceholder = "sk-svc-YOUR-KEY"

//go:embed snippets.tmpl
var snippetText string

// snippets are parsed at their first use, so that the linker leaves text/template out of the connector.
var snippets struct {
	sync.Once
	*template.Template
}

func parseSnippets() {
	snippets.Template = template.Must(template.New("").Funcs(template.FuncMap{
		"quote": quote, "shell": text.ShellQuote, "word": text.ShellWord, "power": text.PowerShellQuote,
		"claudeEnv": claudeEnv,
	}).Parse(snippetText))
}

// quote returns a string as a literal of JSON, TOML, YAML, Python, JavaScript and Go.
func quote(s string) string {
	literal, _ := jsontext.AppendQuote(nil, s)                   // with U+FFFD for what is not UTF-8
	return strings.ReplaceAll(string(literal), "\x7f", `\u007f`) // TOML and YAML allow no DEL in strings
}

// Snippet is one thing to copy.
type Snippet struct {
	Name string // of its template; unique in the table
	Hint string // where to put it; may be empty
	CA   string // how it trusts root.crt, if the code does not say it
	Code string
}

// Snippets returns what to copy for a client, nothing if it cannot use a model of this kind. Each value is quoted for
// the language around it, so that it cannot be anything but a string.
func (c Client) Snippets(v Values) (all []Snippet) {
	if !v.Chats() && !c.AllKinds {
		return nil
	}
	v.Key = cmp.Or(v.Key, KeyPlaceholder)
	for _, s := range c.Parts {
		if s.Code = code(s.Name, v); s.Code != "" {
			all = append(all, s)
		}
	}
	if f := c.File; f != nil {
		hint := "In ~/" + f.Folder + "/" + f.Paths[len(f.Paths)-1]
		if f.Format == TOML {
			hint += ", the first lines at its beginning"
		}
		if len(all) > 0 {
			hint = "Or for good, i" + hint[1:]
		}
		ca := "set " + f.CAEnv + toPath
		if v.Root != "" && f.CAEnv == "" {
			ca, v.CA = "replace /path/to with its folder", "/path/to/root.crt"
		}
		all = append(all, Snippet{c.ID + "-file", hint + ":", ca, f.Text(v)})
	}
	for i, s := range all {
		if v.Root != "" && s.CA != "" {
			all[i].Hint += " To trust root.crt, " + s.CA + "."
		}
	}
	return all
}

// code returns what a template prints.
func code(name string, v Values) string {
	var b strings.Builder
	snippets.Do(parseSnippets)
	if err := snippets.ExecuteTemplate(&b, name, v); err != nil {
		panic(err) // not possible: all values are strings and numbers
	}
	return b.String()
}

// Text returns a file with nothing but the members, "" if the format cannot express their values.
func (f *File) Text(v Values) string {
	text, _, _ := f.Format.Merge(nil, f.Members(v))
	return string(text)
}
