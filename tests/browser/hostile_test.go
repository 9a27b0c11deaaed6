package browser

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// newHostileModels starts a model server whose models have names that nobody
// would give them, and returns its URL.
func newHostileModels(t *testing.T, names ...string) string {
	t.Helper()
	type model struct {
		ID     string `json:"id"`
		Object string `json:"object"`
	}
	var models []model
	for _, name := range names {
		models = append(models, model{name, "model"})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": models})
	}))
	t.Cleanup(server.Close)
	return server.URL
}
