package upstream

import (
	"testing"

	"github.com/postern-dev/postern/connector/config"
)

func patterns(t *testing.T, texts ...string) []config.Pattern {
	t.Helper()
	patterns, err := (&config.Config{Allow: texts}).Patterns()
	if err != nil {
		t.Fatal(err)
	}
	return patterns
}

// TestProxyAllows: what the gateway needs, and what the configuration adds.
func TestProxyAllows(t *testing.T) {
	u := &Server{}
	more := &Server{allow: patterns(t, "DELETE /v1/models/*", "POST /v1/moderations", "POST /v1/audio/*", "GET /v1/*")}
	for _, test := range []struct {
		method, target string
		always, more   bool
	}{
		{"POST", "/v1/chat/completions", true, true},
		{"POST", "/v1/completions", true, true},
		{"POST", "/v1/embeddings", true, true},
		{"GET", "/v1/models", true, true},
		{"GET", "/v1/models?x", true, true},
		{"GET", "/v1/chat/completions", false, true},
		{"GET", "/v1/models/x", false, true},
		{"DELETE", "/v1/models/org/x", false, true},
		{"DELETE", "/v1/models", false, false},
		{"POST", "/v1/rerank", true, true},
		{"POST", "/v1/audio/transcriptions", true, true},
		{"GET", "/v1/audio/voices?model=m", true, true},
		{"POST", "/v1/images/edits", true, true},
		{"POST", "/v1/moderations", false, true},
		{"POST", "/v1/rerank/x", false, false},
		{"PUT", "/v1/rerank", false, false},
		{"POST", "/v1/audio/speech", true, true},
		{"POST", "/v1/audio/voices", false, true},
		{"POST", "/v1/audio/../load_lora_adapter", false, false},
		{"POST", "/v1/audio//x", false, false},
		{"POST", "/v1/load_lora_adapter", false, false},
		{"GET", "/metrics", false, false},
	} {
		r := tunnelRequest(t.Context(), test.method, test.target, "")
		if got := u.allows(r); got != test.always {
			t.Errorf("%s %s: %v", test.method, test.target, got)
		}
		if got := more.allows(r); got != test.more {
			t.Errorf("%s %s, with a configuration: %v", test.method, test.target, got)
		}
	}
}
