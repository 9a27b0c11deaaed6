package clients

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/template"
)

var update = flag.Bool("update", false, "write docs/clients.md")

// docs/clients.md has each client of the table, with the text in testdata.
func TestClientsPage(t *testing.T) {
	v := Values{Base: "https://gw.example.com", Model: "qwen3", Window: unknownWindow}
	described := 0
	page, err := template.New("clients.md").Funcs(template.FuncMap{
		"clients": All,
		"anchor":  func(title string) string { return strings.ReplaceAll(strings.ToLower(title), " ", "-") },
		"base": func(c Client) string {
			if c.Dialect == "messages" {
				return v.Base
			}
			return v.Base + "/v1"
		},
		"client": func(id string) string {
			c := Find(id)
			text := strings.Builder{}
			for i, s := range c.Snippets(v) {
				if i > 0 {
					text.WriteByte('\n')
				}
				fmt.Fprintf(&text, "%s\n\n```%s\n%s\n```\n", wrap(s.Hint), language(c, s.Name), strings.TrimSpace(s.Code))
			}
			described++
			return text.String()
		},
	}).ParseFiles("testdata/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := page.Execute(&text, nil); err != nil {
		t.Fatal(err)
	}
	if described != len(All()) {
		t.Errorf("the page has %d clients of %d", described, len(All()))
	}
	const path = "../../docs/clients.md"
	if *update {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have, err := os.ReadFile(path); err != nil || string(have) != text.String() {
		t.Errorf("%v, or it differs from the table; run: go test ./connector/clients -run TestClientsPage -update", err)
	}
}

// language returns the language of a snippet, for the page.
func language(c Client, name string) string {
	if strings.HasSuffix(name, "-file") {
		return string(c.File.Format)
	}
	_, suffix, _ := strings.Cut(name, "-")
	return cmp.Or(map[string]string{"python": "python", "node": "js", "go": "go"}[suffix],
		map[string]string{"powershell": "powershell"}[name], "sh")
}

// wrap breaks a paragraph into lines of at most 120 columns.
func wrap(paragraph string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(paragraph) {
		switch {
		case i == 0:
		case column+1+len(word) > 120:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
