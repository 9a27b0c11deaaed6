// Package clients describes the programs that use the gateway's API, and how to set each of them up. The console's
// snippets, docs/clients.md and `connector use` come from its table.
package clients

// Client is a program that uses the gateway's API.
type Client struct {
	ID      string // such as "claude"
	Title   string // such as "Claude Code"
	Agent   bool   // needs a model that calls tools
	Dialect string // chat, responses or messages
	WithV1  bool   // its base URL ends in /v1
	Errors  string // how it shows errors, a sentence for people
	Parts   []Part // to copy by hand
	Files   []File // that `connector use` changes; none: it prints the parts
}

// Part is one thing to copy.
type Part struct {
	Name string // of the template of its code
	Hint string // where to put it; may be empty
}

// File is a settings file of a client.
type File struct {
	Path    []string // below the home folder
	Folder  string   // the environment variable that replaces all but the last element of Path; "": none
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

// Member is a value at a path in a file. A number in a path is an element of a list that is recognized by
// its member of that name, see Client.
type Member struct {
	Path  []string
	Value any // a string, a bool, an int, a list or an object of them
}

// Values are the values of one set-up.
type Values struct {
	Base   string // of the gateway, without /v1 and without a slash at its end
	Host   string // of Base, for names of providers: a person may have two gateways
	Model  string
	Key    string
	Window int  // context window in tokens; 0: not known
	Judged bool // the gateway checks tool calls for Claude Code's auto mode
}

// clients are all clients, in display order.
var clients []Client

// All returns the clients in display order.
func All() []Client { return clients }

// Find returns the client with an id.
func Find(id string) (Client, bool) {
	for _, c := range clients {
		if c.ID == id {
			return c, true
		}
	}
	return Client{}, false
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
