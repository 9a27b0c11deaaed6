package link

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/postern-dev/postern/connector/window"
)

// ModelList lists the models of a model server.
type ModelList struct {
	IDs     []string // in the server's order, not nil
	Aliases []string // other names of these models
	Open    bool     // the server also accepts other names
	// Windows are the context windows of the models in tokens, by all names, as far as they are known.
	Windows map[string]int
	Strict  bool // see [UpstreamReport]
	// Status contains the models that a router has not loaded: "loading" or "unloaded". Their windows can be known later.
	Status map[string]string
	// Slots are the numbers of requests that models run at once, as far as llama.cpp's router lists them.
	Slots map[string]int
}

// maxAliases bounds the aliases of a model.
const maxAliases = 16

// listedModel is one entry of a list.
type listedModel struct {
	ID      string          `json:"id"`
	Aliases json.RawMessage `json:"aliases"`
	OwnedBy string          `json:"owned_by"`
	Status  json.RawMessage `json:"status"`
	Meta    json.RawMessage `json:"meta"`

	MaxModelLen   json.RawMessage `json:"max_model_len"`
	ContextWindow json.RawMessage `json:"context_window"`
	LoadedLength  json.RawMessage `json:"loaded_context_length"`
	Parameters    json.RawMessage `json:"parameters"`
}

// ParseModels parses the answer to GET /v1/models. Ollama sends null for an empty list.
// llama.cpp with one model accepts any name; with several models, each has a status.
func ParseModels(data []byte) (_ ModelList, ok bool) {
	var body struct {
		Data json.RawMessage `json:"data"`
	}
	var entries []listedModel
	if json.Unmarshal(data, &body) != nil || body.Data == nil || json.Unmarshal(body.Data, &entries) != nil {
		return ModelList{}, false
	}
	list, listed := ModelList{IDs: make([]string, 0, len(entries))}, make(map[string]bool, len(entries))
	add := func(m listedModel, names ...string) (added []string) {
		tokens, status, slots := m.window(), m.status(), m.slots()
		for _, name := range names {
			if name != "" && !listed[name] {
				listed[name], added = true, append(added, name)
				put(&list.Windows, name, tokens)
				put(&list.Status, name, status)
				put(&list.Slots, name, slots)
			}
		}
		return added
	}
	for _, m := range entries {
		list.IDs = append(list.IDs, add(m, m.ID)...)
		list.Strict = list.Strict || window.Tokens(m.MaxModelLen) > 0
	}
	for _, m := range entries {
		if m.ID != "" {
			list.Aliases = append(list.Aliases, add(m, m.aliases()...)...)
		}
	}
	list.Open = len(entries) == 1 && entries[0].OwnedBy == "llamacpp" && entries[0].Status == nil
	return list, true
}

// Keep adds the windows, listed earlier, of models that the router has unloaded since.
func (l *ModelList) Keep(windows map[string]int) {
	for name := range l.Status {
		if l.Windows[name] == 0 {
			put(&l.Windows, name, windows[name])
		}
	}
}

// aliases returns other names of the model, from llama.cpp's router or llama-swap.
func (m listedModel) aliases() []string {
	var names []string
	var meta struct{ Llamaswap struct{ Aliases []string } }
	_, _ = json.Unmarshal(m.Aliases, &names), json.Unmarshal(m.Meta, &meta) // other values have no such names
	names = slices.DeleteFunc(append(names, meta.Llamaswap.Aliases...), func(name string) bool { return !isName(name) })
	return names[:min(len(names), maxAliases)]
}

// put sets the value of a model, unless it is zero. It creates the map.
func put[V comparable](values *map[string]V, id string, v V) {
	if *values == nil && v != *new(V) {
		*values = make(map[string]V)
	}
	if v != *new(V) {
		(*values)[id] = v
	}
}

// status returns the status of a model that is not loaded, or "".
func (m listedModel) status() string {
	var status struct{ Value string }
	_ = json.Unmarshal(m.Status, &status) // other values have no such field
	switch status.Value {
	case "", "loading":
		return status.Value
	case "loaded":
		return ""
	}
	return "unloaded" // or asleep, or failed
}

// slots returns the number of slots in the arguments with which llama.cpp's router starts the model, or 0.
func (m listedModel) slots() int {
	var status struct{ Args []string }
	_ = json.Unmarshal(m.Status, &status) // other values have no such field
	i := slices.IndexFunc(status.Args, func(arg string) bool { return arg == "--parallel" || arg == "-np" })
	if i < 0 || i+1 == len(status.Args) {
		return 0
	}
	n, _ := strconv.Atoi(status.Args[i+1])
	if n < 1 || n > MaxRequestsLimit {
		return 0
	}
	return n
}

// window returns the context window with which the model runs, or 0. The window for which a model was
// trained, such as "context_length", may be larger.
func (m listedModel) window() int {
	var as struct {
		Slot   json.RawMessage `json:"n_ctx"`       // of llama.cpp
		Loaded json.RawMessage `json:"max_seq_len"` // of TabbyAPI
	}
	_ = json.Unmarshal(m.Meta, &as) // other values have no such field
	_ = json.Unmarshal(m.Parameters, &as)
	for _, field := range []json.RawMessage{m.MaxModelLen, as.Slot, m.ContextWindow, m.LoadedLength, as.Loaded} {
		if n := window.Tokens(field); n > 0 {
			return int(n)
		}
	}
	return 0
}
