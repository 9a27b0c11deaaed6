package clients

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/clients.md")

const pageHead = `# Clients

Written by ~go test ./connector/clients -run TestClientsPage -update~ from the table of clients.

A client needs a base URL, a key and the name of a model. Most want the base URL with ~/v1~; Claude Code and the
Anthropic SDK add it themselves. A base URL with one ~/v1~ too many works, too.

**In one line.** *Set up a client* in the console, at a key or a model, shows a line for the machine with the client:

    curl -fsSL https://gw.example.com/console/use.sh | sh -s -- claude USE-7K3M-Q9TX

Its code works once, for 15 minutes. The line creates a key for this client, tests a request, and sets the gateway in
the client's own files. It keeps a copy, which ~connector use --undo claude~ restores. It knows the clients that have a
file below.

**By hand.** The page of a model in the console has the text below with its name and its window; the page of a new key
has it with the key, too. With nothing but a key, open ~/console/connect~.

**The window.** Few clients ask the gateway for the context window. The files and variables below have it, so that a
client compacts a conversation before the model server refuses it, or [cuts it](deployments.md#context-window) without
a word. Replace 65536 by the window that ~caddy gateway deployment list~ shows; if it shows none,
~caddy gateway deployment measure qwen3~ finds it. The longest answer is a quarter of the window, at most 8192.

**Tools.** Agents need a model that calls tools. *Test* on the page of a model tries it; if that fails, the console
marks the agents with *no tools*.

**Two gateways.** The names of providers in the files have the host of the gateway, so that a file can have both.
Claude Code, Cline, Qwen Code and Copilot CLI have one gateway at a time.

| Client | API | Base URL |
|---|---|---|
`

// docs/clients.md has each client of the table.
func TestClientsPage(t *testing.T) {
	v := Values{Base: "https://gw.example.com", Model: "qwen3", Window: unknownWindow}
	text := strings.Builder{}
	text.WriteString(strings.ReplaceAll(pageHead, "~", "`"))
	for _, c := range All() {
		base := v.Base
		if c.WithV1 {
			base += "/v1"
		}
		fmt.Fprintf(&text, "| [%s](#%s) | %s | `%s` |\n", c.Title, strings.ReplaceAll(strings.ToLower(c.Title), " ", "-"),
			c.Dialect, base)
	}
	for _, c := range All() {
		fmt.Fprintf(&text, "\n## %s\n", c.Title)
		for _, paragraph := range []string{c.Notes, c.Errors} {
			if paragraph != "" {
				fmt.Fprintf(&text, "\n%s\n", wrap(paragraph))
			}
		}
		for i, s := range c.Snippets(v) {
			fmt.Fprintf(&text, "\n%s\n\n```%s\n%s\n```\n", wrap(s.Hint), language(c, c.Parts[i]), strings.TrimSpace(s.Code))
		}
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
