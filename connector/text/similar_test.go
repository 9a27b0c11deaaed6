package text

import (
	"strings"
	"testing"
)

func TestSimilar(t *testing.T) {
	fields := []string{"tunnel_token", "upstream", "upstreams", "base_url", "routes"}
	models := []string{"llama3.2:3b", "llama3.2:1b", "qwen3:8b", "Qwen/Qwen3-32B", "gpt-oss"}
	for _, tt := range []struct {
		name       string
		candidates []string
		want       string
	}{
		{"tunneltoken", fields, "tunnel_token"},
		{"TUNNEL-TOKEN", fields, "tunnel_token"},
		{"upstreem", fields, "upstream"},
		{"Upstreams", fields, "upstreams"},
		{"baseURL", fields, "base_url"},
		{"rotues", fields, "routes"},
		{"timeout", fields, ""},
		{"", fields, ""},
		{strings.Repeat("routes", 30), fields, ""},
		{"llama3.2", models, "llama3.2:3b"},
		{"Llama3.2:3B", models, "llama3.2:3b"},
		{"llama3.2:1", models, "llama3.2:1b"},
		{"qwen3", models, "qwen3:8b"},
		{"qwen/qwen3-32b", models, "Qwen/Qwen3-32B"},
		{"gptoss", models, "gpt-oss"},
		{"mistral", models, ""},
		{"x", []string{"a", "b"}, ""},
		{"lst", []string{"rust", "list"}, "list"},
		{"big", []string{"bed"}, ""},
		{"a", []string{strings.Repeat("a", 200)}, ""},
	} {
		if got := Similar(tt.name, tt.candidates); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// slowDistance is the Levenshtein distance by its definition.
func slowDistance(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	if a[0] == b[0] {
		return slowDistance(a[1:], b[1:])
	}
	return 1 + min(slowDistance(a[1:], b[1:]), slowDistance(a[1:], b), slowDistance(a, b[1:]))
}

func TestDistance(t *testing.T) {
	var words []string
	for n := range 729 { // all words of up to six letters from a and b
		word := ""
		for ; n > 0; n /= 3 {
			word += []string{"", "a", "b"}[n%3]
		}
		words = append(words, word)
	}
	for _, a := range words[:243] {
		for _, b := range words {
			if got, want := distance(a, b), min(slowDistance(a, b), maxEdits+1); got != want {
				t.Fatalf("%q, %q: %d, want %d", a, b, got, want)
			}
		}
	}
}

// A list of any length costs as much as its first thousand names.
func TestSimilarIsBounded(t *testing.T) {
	names := make([]string, maxCandidates, maxCandidates+1)
	for i := range names {
		names[i] = "other"
	}
	names[maxCandidates-1] = "qwen3"
	if got := Similar("qwen", append(names, "qwen")); got != "qwen3" {
		t.Errorf("of more than %d names, it is %q", maxCandidates, got)
	}
}
