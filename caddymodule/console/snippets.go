package console

import (
	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/connector/clients"
)

// snippet is a tab of code to copy.
type snippet struct {
	ID    string // unique in the list, for ids of elements
	Title string
	Parts []clients.Snippet
	Agent bool   // needs a model that calls tools
	Small string // the context window is too small for it: see [clients.Client.TooSmall]
}

// snippetsOf returns the configuration of clients for a deployment. An empty key is replaced by a placeholder.
func snippetsOf(d manage.Deployment, at manage.Endpoint, key string) []snippet {
	v := clients.Values{
		Base: at.URL, Key: key, Model: d.Name, Window: d.ContextWindow,
		Kind: string(d.ModelKind()), Judged: d.Options.Safeguards != "",
	}
	if at.Root != "" {
		v.Root = "root.crt"
	}
	var all []snippet
	for _, c := range clients.All() {
		s := snippet{c.ID, c.Title, c.Snippets(v), c.Agent, c.TooSmall(v.Window)}
		if len(s.Parts) == 0 { // it cannot use a model of this kind
			continue
		}
		if c.Agent && v.Window == 0 {
			s.Parts[0].Hint = v.Guess() + " " + s.Parts[0].Hint
		}
		all = append(all, s)
	}
	return all
}

// pairLines returns the commands that connect another machine.
func pairLines(c downloads.Commands) []snippet {
	var lines []snippet
	add := func(id, title, hint, command string) {
		if command != "" {
			lines = append(lines, snippet{ID: id, Title: title, Parts: []clients.Snippet{{Name: id, Hint: hint, Code: command}}})
		}
	}
	add("unix", "Linux, macOS", "In a shell. As root, it is installed for the whole machine:", c.Install)
	add("windows", "Windows", "In PowerShell:", c.InstallWindows)
	add("installed", "Installed already", "Where the connector is installed already:", c.Pair)
	return lines
}
