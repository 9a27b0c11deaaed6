package link

import "encoding/json"

// ModelList is what a model server lists.
type ModelList struct {
	IDs  []string // in the server's order, not nil
	Open bool     // the server answers to other names, too
}

// ParseModels reads the answer to GET /v1/models. Ollama answers null for an empty
// list. llama.cpp with one model answers to every name; with several, each has a
// status.
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
