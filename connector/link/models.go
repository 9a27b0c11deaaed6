package link

import "encoding/json"

// ModelList is the list of models of a model server.
type ModelList struct {
	IDs  []string // in the server's order, not nil
	Open bool     // the server also accepts other names
	// Windows are the context windows of the models in tokens, as far as they are known.
	Windows map[string]int
}

// ParseModels parses the answer to GET /v1/models. Ollama sends null for an empty list.
// llama.cpp with one model accepts any name; with several models, each has a status.
func ParseModels(data []byte) (_ ModelList, ok bool) {
	var body struct {
		Data json.RawMessage `json:"data"`
	}
	var entries []struct {
		ID      string          `json:"id"`
		OwnedBy string          `json:"owned_by"`
		Status  json.RawMessage `json:"status"`
	}
	if json.Unmarshal(data, &body) != nil || body.Data == nil || json.Unmarshal(body.Data, &entries) != nil {
		return ModelList{}, false
	}
	list := ModelList{IDs: make([]string, 0, len(entries))}
	for _, m := range entries {
		if m.ID != "" {
			list.IDs = append(list.IDs, m.ID)
		}
	}
	list.Open = len(entries) == 1 && entries[0].OwnedBy == "llamacpp" && entries[0].Status == nil
	return list, true
}
