// Package clients describes the programs that use the gateway's API, and how to set each of them up. The console's
// snippets, docs/clients.md and `connector use` come from its table.
package clients

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/postern-dev/postern/connector/window"
)

// Client is a program that uses the gateway's API.
type Client struct {
	ID       string    // such as "claude"
	Title    string    // such as "Claude Code"
	Agent    bool      // needs a model that calls tools
	AllKinds bool      // can use other models than those for chats
	Dialect  string    // chat, responses or messages; the base URL of messages ends without /v1
	Parts    []Snippet // to copy, without their code, which templates print
	File     *File     // that `connector use` changes; nil: none
	// MinWindow is the smallest context window in which it works, in tokens; 0: any. The prompts and tools of agents
	// alone have about 10,000.
	MinWindow int
}

// TooSmall compares a context window with the smallest one of the client, like "8k of 32k"; "": it suffices, or is not
// known.
func (c Client) TooSmall(tokens int) string {
	if tokens <= 0 || tokens >= c.MinWindow {
		return ""
	}
	return fmt.Sprintf("%dk of %dk", tokens>>10, c.MinWindow>>10)
}

// Warning says that the context window of a model is too small for the client; "": it is not.
func (c Client) Warning(v Values) string {
	if c.TooSmall(v.Window) == "" {
		return ""
	}
	return fmt.Sprintf("The context window of %s is too small for %s: %s tokens.", v.Model, c.Title, c.TooSmall(v.Window))
}

// File is a settings file of a client.
type File struct {
	Env     string   // the environment variable that replaces Folder; "": none
	Folder  string   // below the home folder
	Paths   []string // below the folder; the first one that exists is used, otherwise the last
	Login   string   // file next to it: the client's sign-in elsewhere; "": none
	CAEnv   string   // the environment variable with a file of authorities; "": a member names it
	Format  Format
	Members func(Values) []Member // to set
}

// Format is the format of a settings file.
type Format string

// The formats. JSON may contain comments.
const (
	JSON Format = "json"
	TOML Format = "toml"
	YAML Format = "yaml"
)

// Member is a value at a path in a file.
type Member struct {
	Path    []string
	Value   any  // a string, a bool, an int, or a list of strings; nil removes the member
	Default bool // an existing value stays
}

// Values are the values of one set-up.
type Values struct {
	Base   string `json:"base"` // of the gateway, without /v1 and without a slash at its end
	Model  string `json:"model"`
	Key    string `json:"key"`
	Window int    `json:"window,omitzero"` // context window in tokens; 0: unknown
	Judged bool   `json:"judged,omitzero"` // the gateway checks tool calls for Claude Code's auto mode
	Kind   string `json:"-"`               // of the model; "": chat
	CA     string `json:"-"`               // path of a file with the gateway's authority, if it is not a public one
	Root   string `json:"-"`               // the same in the current folder, for snippets of shells
}

// unknownWindow is the context window of a set-up if it is unknown.
const unknownWindow = 65536

// Tokens returns the context window, or a guess.
func (v Values) Tokens() int { return min(cmp.Or(max(v.Window, 0), unknownWindow), window.Max) }

// Guess says that the context window of a set-up is a guess; "": it is known.
func (v Values) Guess() string {
	if v.Window > 0 {
		return ""
	}
	return fmt.Sprintf("The context window is not known, and %d is a guess: an admin of the gateway can press Measure on "+
		"the page of the model.", v.Tokens())
}

// Output returns the longest answer: agents compact a conversation that leaves less of the context window.
func (v Values) Output() int { return max(1024, min(v.Tokens()/4, 8192)) }

// Prompt returns the longest prompt that leaves room for an answer.
func (v Values) Prompt() int { return v.Tokens() - v.Output() }

// examples are requests for the kinds of models that are not for chats: their paths after /v1/, and their fields.
var examples = map[string]struct{ path, fields string }{
	"embeddings":    {"embeddings", `"input": "Some text to embed."`},
	"rerank":        {"rerank", `"query": "Where is the Louvre?", "documents": ["Apples are sweet.", "It is in Paris."]`},
	"transcription": {"audio/transcriptions", ""}, // a form
	"speech":        {"audio/speech", `"input": "Hello.", "voice": "alloy"`},
	"image":         {"images/generations", `"prompt": "a red circle", "response_format": "b64_json"`},
}

// Chats reports whether it is a chat model.
func (v Values) Chats() bool { return examples[v.Kind].path == "" }

// Path returns the path of a request, after /v1/.
func (v Values) Path() string { return cmp.Or(examples[v.Kind].path, "chat/completions") }

// Body returns the body of a request, "" if that is a form.
func (v Values) Body(stream bool) string {
	fields := examples[v.Kind].fields
	switch {
	case v.Chats():
		fields = fmt.Sprintf(`"stream": %v, "messages": [{"role": "user", "content": "Say hello."}]`, stream)
	case fields == "":
		return ""
	}
	return fmt.Sprintf(`{"model": %s, %s}`, quote(v.Model), fields)
}

// Host returns the gateway's host, with its port.
func (v Values) Host() string {
	_, host, _ := strings.Cut(v.Base, "://")
	return host
}

var thisMachine = regexp.MustCompile(`^https?://(([^/]*\.)?localhost|127\.[0-9.]+|\[::1])(:|$)`)

// Loopback reports whether only this machine reaches the gateway.
func (v Values) Loopback() bool { return thisMachine.MatchString(v.Base) }

var notInProvider = regexp.MustCompile(`[^a-z0-9]+`)

// Provider returns the name of the gateway in a client's settings, such as postern-gw-example-com: a person may have
// two gateways.
func (v Values) Provider() string {
	return "postern-" + strings.Trim(notInProvider.ReplaceAllString(strings.ToLower(v.Host()), "-"), "-")
}

// Trade is the request that trades a code for a key, at /console/use.
type Trade struct {
	Code    string `json:"code"`
	Client  string `json:"client"`  // id of the client
	Machine string `json:"machine"` // host name, for the name of the key
}

// Traded is its answer.
type Traded struct {
	KeyName string `json:"key_name"`
	Values
}
