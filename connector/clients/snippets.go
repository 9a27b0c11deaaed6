package clients

import (
	"bytes"
	"cmp"
	_ "embed" // for the code of snippets
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

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
	members := slices.DeleteFunc(f.Members(v), func(m Member) bool { return m.Value == nil && m.Item == "" })
	var b bytes.Buffer
	var err error
	switch f.Format {
	case TOML:
		tables(&b, members)
	case YAML:
		e := yaml.NewEncoder(&b)
		e.SetIndent(2)
		err = e.Encode(object(members))
	default:
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		err = e.Encode(object(members))
	}
	if err != nil {
		panic(err) // not possible: all values are strings, bools, numbers and lists
	}
	return b.String()
}

// object returns an object with the members.
func object(members []Member) map[string]any {
	root := map[string]any{}
	for _, m := range members {
		at, last := root, len(m.Path)-1
		for _, name := range m.Path[:last] {
			if _, ok := at[name]; !ok {
				at[name] = map[string]any{}
			}
			at = at[name].(map[string]any)
		}
		if at[m.Path[last]] = m.Value; m.Item != "" {
			at[m.Path[last]] = []any{object(m.Element)}
		}
	}
	return root
}

// tables writes members as TOML. Those of a table follow one another, after those without one.
func tables(b *bytes.Buffer, members []Member) {
	table := ""
	for _, m := range members {
		names := make([]string, len(m.Path))
		for i, name := range m.Path {
			if names[i] = name; strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
				names[i] = quote(name)
			}
		}
		last := len(names) - 1
		if at := strings.Join(names[:last], "."); at != table {
			fmt.Fprintf(b, "\n[%s]\n", at)
			table = at
		}
		value := fmt.Sprint(m.Value)
		if s, ok := m.Value.(string); ok {
			value = quote(s)
		}
		fmt.Fprintf(b, "%s = %s\n", names[last], value)
	}
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
