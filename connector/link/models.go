package link

import (
	"encoding/json"

	"github.com/postern-dev/postern/connector/window"
)

// ModelList is the list of models of a model server.
type ModelList struct {
	IDs  []string // in the server's order, not nil
	Open bool     // the server also accepts other names
	// Windows are the context windows of the models in tokens, as far as they are known.
	Windows map[string]int
	// Unloaded means that a router has not loaded some models: their windows can be known later.
	Unloaded bool
}

// listedModel is one entry of a list.
type listedModel struct {
	ID      string          `json:"id"`
	OwnedBy string          `json:"owned_by"`
	Status  json.RawMessage `json:"status"`
	Meta    json.RawMessage `json:"meta"`

	MaxModelLen   json.RawMessage `json:"max_model_len"`
	ContextWindow json.RawMessage `json:"context_window"`
	LoadedLength  json.RawMessage `json:"loaded_context_length"`
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
	list := ModelList{IDs: make([]string, 0, len(entries))}
	for _, m := range entries {
		if m.ID == "" {
			continue
		}
		list.IDs = append(list.IDs, m.ID)
		tokens := m.window()
		list.Unloaded = list.Unloaded || tokens == 0 && m.Status != nil
		if list.Windows == nil && tokens > 0 {
			list.Windows = make(map[string]int)
		}
		if tokens > 0 {
			list.Windows[m.ID] = tokens
		}
	}
	list.Open = len(entries) == 1 && entries[0].OwnedBy == "llamacpp" && entries[0].Status == nil
	return list, true
}

// window returns the context window with which the model runs, or 0. The window for which a model was
// trained, such as "context_length", may be larger.
func (m listedModel) window() int {
	var meta struct {
		Window json.RawMessage `json:"n_ctx"` // of one slot
	}
	_ = json.Unmarshal(m.Meta, &meta) // other values have no such field
	for _, field := range []json.RawMessage{m.MaxModelLen, meta.Window, m.ContextWindow, m.LoadedLength} {
		if n := window.Tokens(field); n > 0 {
			return int(n)
		}
	}
	return 0
}
