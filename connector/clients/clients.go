// Package clients describes the programs that use the gateway's API, and how to set each of them up. The console's
// snippets, docs/clients.md and `connector use` come from its table.
package clients

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// Client is a program that uses the gateway's API.
type Client struct {
	ID      string // such as "claude"
	Title   string // such as "Claude Code"
	Agent   bool   // needs a model that calls tools
	Embeds  bool   // can use embedding models
	Dialect string // chat, responses or messages
	WithV1  bool   // its base URL ends in /v1
	Errors  string // how it shows errors, sentences for people
	Parts   []Part // to copy by hand
	Files   []File // that `connector use` changes; none: it prints the parts
}

// Part is one thing to copy: what a template prints, or the text of a file.
type Part struct {
	Name string // of the template; unique in the table
	Hint string // where to put it; may be empty
	File int    // the number of the file in Files, from 1; 0: a template
}

// File is a settings file of a client.
type File struct {
	Env     string   // the environment variable that replaces Folder; "": none
	Folder  string   // below the home folder
	Paths   []string // below the folder; the first one that exists is used, otherwise the last
	Login   string   // below the folder: the client's sign-in elsewhere; "": none
	Format  Format
	Members func(Values) []Member // to set
}

// Format is the format of a settings file.
type Format string

// The formats. JSON may have comments.
const (
	JSON Format = "json"
	TOML Format = "toml"
	YAML Format = "yaml"
)

// Member is a value at a path in a file. One with an Item sets an object in a list: the one whose member Item has the
// same value as in Element. It is replaced, or put in front. The paths of Element begin in the object.
type Member struct {
	Path    []string
	Value   any    // a string, a bool, an int, or a list of strings; nil removes the member
	Default bool   // an existing value stays
	Item    string // not empty: Path is a list
	Element []Member
}

// Values are the values of one set-up.
type Values struct {
	Base   string // of the gateway, without /v1 and without a slash at its end
	Model  string
	Key    string
	Window int    // context window in tokens; 0: not known
	Embeds bool   // it is an embedding model
	CA     string // the path of a file with the gateway's authority, if it is not a public one
	Judged bool   // the gateway checks tool calls for Claude Code's auto mode
}

// unknownWindow is the context window of a set-up if it is not known.
const unknownWindow = 65536

// Tokens returns the context window, or a guess.
func (v Values) Tokens() int { return cmp.Or(v.Window, unknownWindow) }

// Output returns the longest answer: agents compact a conversation that leaves less of the context window.
func (v Values) Output() int { return max(1024, min(v.Tokens()/4, 8192)) }

// Prompt returns the longest prompt that leaves room for an answer.
func (v Values) Prompt() int { return v.Tokens() - v.Output() }

// Path returns the path of a request, after /v1/.
func (v Values) Path() string {
	if v.Embeds {
		return "embeddings"
	}
	return "chat/completions"
}

// Body returns the body of a request.
func (v Values) Body(stream bool) string {
	if v.Embeds {
		return fmt.Sprintf(`{"model": %s, "input": "Some text to embed."}`, quote(v.Model))
	}
	return fmt.Sprintf(`{"model": %s, "stream": %v, "messages": [{"role": "user", "content": "Say hello."}]}`,
		quote(v.Model), stream)
}

// Host returns the gateway's host, with its port.
func (v Values) Host() string { return v.url().Host }

// Loopback reports whether only this machine reaches the gateway.
func (v Values) Loopback() bool {
	host := v.url().Hostname()
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// url returns the base URL, an empty one if it is invalid.
func (v Values) url() *url.URL {
	u, err := url.Parse(v.Base)
	if err != nil {
		return &url.URL{}
	}
	return u
}

// Provider returns the name of the gateway in a client's settings, such as postern-gw-example-com: a person may have
// two gateways.
func (v Values) Provider() string {
	return "postern-" + strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(v.Host())), "-")
}

// Trade is the request that trades a code for a key, at /console/use.
type Trade struct {
	Code    string `json:"code"`
	Client  string `json:"client"`  // id of the client
	Machine string `json:"machine"` // host name, for the name of the key
}

// Traded is its answer.
type Traded struct {
	Key     string  `json:"key"`
	KeyName string  `json:"key_name"`
	Base    string  `json:"base"`
	Model   string  `json:"model"` // that the person has chosen
	Models  []Model `json:"models"`
}

// Model is a model that the key may use.
type Model struct {
	ID     string `json:"id"`
	Window int    `json:"window,omitzero"`
	Judged bool   `json:"judged,omitzero"`
}
