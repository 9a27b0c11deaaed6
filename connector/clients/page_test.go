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
			if c.WithV1 {
				return v.Base + "/v1"
			}
			return v.Base
		},
		"client": func(id string) string {
			c, _ := Find(id)
			text := strings.Builder{}
			fmt.Fprintln(&text, wrap(c.Errors))
			for i, s := range c.Snippets(v) {
				fmt.Fprintf(&text, "\n%s\n\n```%s\n%s\n```\n", wrap(s.Hint), language(c, c.Parts[i]), strings.TrimSpace(s.Code))
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

// language returns the language of a part, for the page.
func language(c Client, p Part) string {
	if p.File > 0 {
		return string(c.Files[p.File-1].Format)
	}
	_, suffix, _ := strings.Cut(p.Name, "-")
	return cmp.Or(map[string]string{"python": "python", "node": "js", "go": "go"}[suffix],
		map[string]string{"powershell": "powershell"}[p.Name], "sh")
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
